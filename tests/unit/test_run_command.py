from __future__ import annotations

import shlex

import pytest
from factories import MANAGERS, MOUNTS
from hypothesis import given
from hypothesis import strategies as st

from cannery.catalog.catalog import ChipAccess
from cannery.errors import UnableError, UsageError
from cannery.host.facts import NPU_SMI, HostNpus, full_model, lacking, parse_cards, wanted_paths
from cannery.run.container import Container, RunRequest, docker_arguments, docker_text, make_container

ACCESS = ChipAccess(names="A2", cards=8, managers=MANAGERS, mounts=MOUNTS)
REQUEST = RunRequest(image="stack:tag", shm_size="2g")
HOST = HostNpus(
    frozenset({*MANAGERS, "/dev/davinci0", "/dev/davinci2", "/dev/davinci10"}), frozenset({*MOUNTS, NPU_SMI[0]}), 1000
)


def devices(command: Container) -> list[str]:
    return [
        b for a, b in zip(docker_arguments(command), docker_arguments(command)[1:], strict=False) if a == "--device"
    ]


@given(st.sets(st.integers(0, 63), min_size=1), st.data())
def test_card_lists_are_read_back(cards: set[int], data: st.DataObject) -> None:
    parts = []
    for card in sorted(cards):
        end = card
        while end + 1 in cards and data.draw(st.booleans()):
            end += 1
        parts.append(f"{card}-{end}" if end > card else f"{card}")
    text = ",".join(data.draw(st.permutations(parts)))
    assert parse_cards(text) == tuple(sorted(cards))


@pytest.mark.parametrize("text", ["", ",", "a", "0;1", "4-1", "-1", "1-", "0,,1", "all", "9999", "٣"])
def test_no_cards(text: str) -> None:
    with pytest.raises(UsageError, match="names no cards") as caught:
        parse_cards(text)
    assert "0,1,4-7" in caught.value.hint


def test_cards_are_numbers_in_order() -> None:
    assert HOST.cards == (0, 2, 10)
    assert HostNpus(frozenset({"/dev/davinci_manager"}), frozenset()).cards == ()


def test_all_cards_and_managers_and_driver_and_nothing_more() -> None:
    command = make_container(REQUEST, ACCESS, HOST)
    assert devices(command) == ["/dev/davinci0", "/dev/davinci2", "/dev/davinci10", *MANAGERS]
    assert docker_arguments(command)[:4] == ("run", "--rm", "--init", "-i")
    assert "type=bind,source=/usr/local/dcmi,target=/usr/local/dcmi,readonly" in docker_arguments(command)
    assert docker_arguments(command)[-1] == "stack:tag"
    assert ("--group-add", "1000") in zip(docker_arguments(command), docker_arguments(command)[1:], strict=False)
    assert not {"--privileged", "--network", "-it"} & set(docker_arguments(command))
    assert command.notes == ()


def test_named_cards_only() -> None:
    command = make_container(RunRequest("i", "1g", cards=(2,)), ACCESS, HOST)
    assert devices(command) == ["/dev/davinci2", *MANAGERS]


@pytest.mark.parametrize(
    ("host", "cards", "what"),
    [
        (HostNpus(frozenset(MANAGERS), frozenset()), None, "no NPU on this host"),
        (HostNpus(frozenset({"/dev/davinci0", MANAGERS[0]}), frozenset()), None, "/dev/devmm_svm, /dev/hisi_hdc"),
        (HOST, (0, 3, 4), "no card 3, 4 on this host"),
    ],
)
def test_a_host_that_cannot(host: HostNpus, cards: tuple[int, ...] | None, what: str) -> None:
    with pytest.raises(UnableError) as caught:
        make_container(RunRequest("i", "1g", cards=cards), ACCESS, host)
    assert what in caught.value.what
    assert caught.value.hint


def test_without_npu_nothing_of_the_host_comes_in() -> None:
    command = make_container(RunRequest("i", "1g", npu=False, name="nn", command=("python", "-V")), ACCESS, HOST)
    assert docker_arguments(command) == (
        "run",
        "--rm",
        "--init",
        "-i",
        "--name",
        "nn",
        "--shm-size",
        "1g",
        "i",
        "python",
        "-V",
    )


def test_mounts_environment_and_background_are_docker_s() -> None:
    request = RunRequest("i", "1g", npu=False, detach=True, volumes=("/data:/data:ro",), env=("A=1", "B"))
    words = docker_arguments(make_container(request, ACCESS, HOST))
    assert words[:4] == ("run", "--rm", "--init", "--detach")
    assert words[-7:] == ("-v", "/data:/data:ro", "-e", "A=1", "-e", "B", "i")


def test_what_is_missing_on_the_host_is_left_out_with_a_note() -> None:
    host = HostNpus(HOST.nodes, frozenset(MOUNTS[:1]))
    command = make_container(REQUEST, ACCESS, host)
    assert [w for w in docker_arguments(command) if w.startswith("type=")] == [
        "type=bind,source=/usr/local/dcmi,target=/usr/local/dcmi,readonly"
    ]
    assert command.notes == (f"this host has no {MOUNTS[1]}: not mounted", "this host has no npu-smi: not mounted")
    assert lacking(ACCESS, host) == (MOUNTS[1], "npu-smi")


@pytest.mark.parametrize("path", NPU_SMI)
def test_npu_smi_goes_where_path_finds_it(path: str) -> None:
    command = make_container(REQUEST, ACCESS, HostNpus(HOST.nodes, frozenset({path})))
    assert f"type=bind,source={path},target={NPU_SMI[0]},readonly" in docker_arguments(command)


def test_the_full_model_is_complete() -> None:
    host = full_model(ACCESS, None)
    assert host.cards == tuple(range(8))
    assert lacking(ACCESS, host) == ()
    assert make_container(REQUEST, ACCESS, host).notes == ()
    assert full_model(ACCESS, (3, 5)).cards == (3, 5)
    assert set(wanted_paths(ACCESS)) >= host.nodes | host.paths


def test_everything_is_missing_on_a_bare_host_by_name() -> None:
    assert lacking(ACCESS, HostNpus(frozenset(), frozenset())) == (*MANAGERS, "/dev/davinci0 …", *MOUNTS, "npu-smi")


words = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\\"), max_size=8)


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,7}", fullmatch=True)


@given(st.lists(words, max_size=4), st.one_of(st.none(), names))
def test_the_printed_command_is_the_command(command: list[str], name: str | None) -> None:
    made = make_container(RunRequest("i", "1g", terminal=True, name=name, command=tuple(command)), ACCESS, HOST)
    assert shlex.split(docker_text(made).replace("\\\n", " ")) == ["docker", *docker_arguments(made)]


def test_the_printed_command_has_one_option_a_line() -> None:
    text = docker_text(
        make_container(RunRequest("i", "1g", npu=False, name="nn", command=("echo", "x y")), ACCESS, HOST)
    )
    assert text.split(" \\\n    ")[:4] == ["docker run", "--rm", "--init", "-i"]
    assert text.split(" \\\n    ")[4:6] == ["--name nn", "--shm-size 1g"]
