"""How a container reaches NPUs: which nodes, mounts and variables, and what is refused."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import pairwise

import pytest
from hosts import FULL_A2, FULL_A3, HCCN, MANAGERS, OTHERWISE, PARTIAL, nodes
from hypothesis import given
from hypothesis import strategies as st

from cannery.catalog.catalog import ChipAccess
from cannery.errors import UnableError, UsageError
from cannery.host.facts import (
    DRIVER_GROUP,
    NPU_SMI,
    RANKTABLE,
    HostNpus,
    card_text,
    full_model,
    lacking,
    parse_cards,
    wanted_paths,
)
from cannery.run.container import Container, RunRequest, docker_arguments, host_folder, make_container
from cannery.sandbox.box import Mount

MOUNTS = ("/usr/local/dcmi", "/usr/local/Ascend/driver/lib64")
ACCESS = ChipAccess(names="A2", cards=8, managers=MANAGERS, mounts=MOUNTS, network=(HCCN,), ranktable="1.0")
ETH = "eth0"


def made(host: HostNpus = FULL_A2, access: ChipAccess = ACCESS, **asked: object) -> Container:
    return make_container(RunRequest("image", "16g", **asked), access, host)  # type: ignore[arg-type] # of the request


def words(container: Container, option: str) -> list[str]:
    return [b for a, b in pairwise(docker_arguments(container)) if a == option]


def test_the_folder_of_the_host_in_a_volume() -> None:
    folders = {text: host_folder(text) for text in ("/a:/b:ro", "./a:/b", "../a:/b", ".:/b", "data:/b", "/b")}
    assert folders == {
        "/a:/b:ro": "/a", "./a:/b": "./a", "../a:/b": "../a", ".:/b": ".", "data:/b": "", "/b": ""
    }  # fmt: skip


# Words


@pytest.mark.parametrize(
    ("asked", "what", "hint"),
    [
        ({"volumes": ("",)}, "-v '' is not a volume", "SRC:DST"),
        ({"volumes": (":/x",)}, "-v ':/x' is not a volume", "SRC:DST"),
        ({"volumes": ("/a:x",)}, "-v '/a:x' is not a volume", "from / on"),
        ({"volumes": ("data",)}, "-v 'data' is not a volume", "from / on"),
        ({"volumes": ("/a:b:/x:ro",)}, "-v '/a:b:/x:ro' is not a volume", "colon"),
        ({"env": ("=x",)}, "-e '=x' is not a variable", "NAME=VALUE"),
        ({"env": ("",)}, "-e '' is not a variable", "NAME=VALUE"),
        ({"env": ("A B=c",)}, "-e 'A B=c' is not a variable", "no blanks"),
    ],
)
def test_words_that_no_engine_takes_are_refused_with_what_is_wanted(
    asked: dict[str, object], what: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        made(**asked)
    assert caught.value.what == what
    assert hint in caught.value.hint


def test_words_that_docker_takes_pass() -> None:
    container = made(
        volumes=("/anonymous", "/a:/x:ro,z", "data:/y"), env=("A.b-c=d e", "EMPTY=", "HOST"), name="a_B.c-1"
    )
    assert words(container, "-v")[-3:] == ["/anonymous", "/a:/x:ro,z", "data:/y"]
    assert words(container, "-e") == ["A.b-c=d e", "EMPTY=", "HOST"]
    assert words(container, "--name") == ["a_B.c-1"]


def test_an_index_of_thousands_of_digits_is_refused_and_not_repeated_whole() -> None:
    with pytest.raises(UsageError) as caught:
        made(env=(f"ASCEND_RT_VISIBLE_DEVICES={'9' * 5000}",))
    assert caught.value.what.endswith("… outside 0..7")
    assert len(caught.value.what) < 250


# Cards


def test_exactly_the_cards_that_are_named_and_the_managers_are_in_it() -> None:
    assert made(cards=(1, 4, 5)).devices == ("/dev/davinci1", "/dev/davinci4", "/dev/davinci5", *MANAGERS)
    assert made(PARTIAL).devices == ("/dev/davinci3", "/dev/davinci4", *MANAGERS)
    assert made(FULL_A3).cards == 16


def test_named_cards_count_from_0_in_the_container() -> None:
    """Case D06."""
    container = made(PARTIAL, cards=(3, 4))
    assert container.visible == (("ASCEND_RT_VISIBLE_DEVICES", "0,1"),)
    assert "ASCEND_RT_VISIBLE_DEVICES=0,1" in words(container, "-e")
    assert made(PARTIAL).visible == (), "all of them: nothing has to be said"


@pytest.mark.parametrize("value", ["0", "1", "0,1", "1, 0"])
def test_the_users_own_choice_among_the_containers_cards_stays(value: str) -> None:
    container = made(PARTIAL, cards=(3, 4), env=(f"ASCEND_RT_VISIBLE_DEVICES={value}",))
    assert container.visible == ()
    assert words(container, "-e") == [f"ASCEND_RT_VISIBLE_DEVICES={value}"]


@pytest.mark.parametrize(
    ("value", "bad"), [("4", "4"), ("3,4", "3, 4"), ("0,2", "2"), ("", ""), ("-1", "-1"), ("a", "a")]
)
@pytest.mark.parametrize("cards", [(3, 4), None])
def test_a_choice_by_the_hosts_numbers_is_refused(value: str, bad: str, cards: tuple[int, ...] | None) -> None:
    """Case D06: the host's card 4 is the container's 1."""
    with pytest.raises(UsageError) as caught:
        made(PARTIAL, cards=cards, env=(f"ASCEND_RT_VISIBLE_DEVICES={value}",))
    assert f"ASCEND_RT_VISIBLE_DEVICES={value}: index {bad} outside 0..1" in caught.value.what
    assert "counts the container's own cards from 0" in caught.value.hint


@pytest.mark.parametrize("runtime", [None, "ascend"])
def test_the_runtimes_variable_follows_from_the_cards(runtime: str | None) -> None:
    with pytest.raises(UsageError, match="ASCEND_VISIBLE_DEVICES is how the Ascend Docker runtime") as caught:
        made(runtime=runtime, env=("ASCEND_VISIBLE_DEVICES=6,7",))
    assert "--npus" in caught.value.hint


@given(st.sets(st.integers(0, 63), min_size=1))
def test_card_numbers_are_written_as_they_are_read(cards: set[int]) -> None:
    assert parse_cards(card_text(cards)) == tuple(sorted(cards))


@pytest.mark.parametrize(
    ("cards", "text"), [((0,), "0"), ((0, 1), "0,1"), ((0, 1, 2), "0-2"), ((7, 0, 1, 4, 5, 6), "0,1,4-7")]
)
def test_runs_of_three_are_ranges(cards: tuple[int, ...], text: str) -> None:
    assert card_text(cards) == text


# One way or the other


def test_the_runtime_brings_devices_and_driver_and_nothing_is_given_twice() -> None:
    """Case D08."""
    container = made(PARTIAL, runtime="ascend", cards=(3, 4))
    assert (container.devices, container.driver, container.notes) == ((), (), ())
    assert words(container, "--runtime") == ["ascend"]
    assert words(container, "--device") == words(container, "-v") == []
    assert words(container, "-e") == ["ASCEND_VISIBLE_DEVICES=3,4", "ASCEND_RT_VISIBLE_DEVICES=0,1"]


def test_without_the_runtime_its_variable_is_not_set() -> None:
    assert not [word for word in docker_arguments(made(cards=(0,))) if "ASCEND_VISIBLE_DEVICES" in word]
    assert words(made(), "--runtime") == []


def test_the_runtime_gets_every_card_by_number() -> None:
    assert words(made(runtime="ascend"), "-e") == ["ASCEND_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"]


def test_a_runtime_for_no_npu_contradicts_itself() -> None:
    with pytest.raises(UsageError, match="the runtime ascend adds NPUs, and NPUS=none asks for none"):
        made(runtime="ascend", npu=False)


@pytest.mark.parametrize(("cards", "what"), [((5,), "no card 5"), (None, "hisi_hdc")])
def test_the_runtime_can_give_only_what_exists(cards: tuple[int, ...] | None, what: str) -> None:
    host = PARTIAL if cards else replace(PARTIAL, nodes=PARTIAL.nodes - {"/dev/hisi_hdc"})
    with pytest.raises(UnableError, match=what):
        made(host, runtime="ascend", cards=cards)


# Driver, npu-smi, group, shm


def test_what_is_missing_on_the_host_is_not_mounted() -> None:
    container = made(OTHERWISE)
    assert container.driver == (
        Mount(MOUNTS[1], MOUNTS[1], read_only=True),
        Mount("/usr/bin/npu-smi", NPU_SMI[0], read_only=True),
    )
    assert container.notes == ("this host has no /usr/local/dcmi: not mounted",)


@pytest.mark.parametrize(("host", "group"), [(FULL_A2, ["1000"]), (PARTIAL, ["2000"]), (OTHERWISE, [])])
@pytest.mark.parametrize("runtime", [None, "ascend"])
def test_the_group_of_the_nodes_is_added(host: HostNpus, group: list[str], runtime: str | None) -> None:
    """Case U01."""
    assert words(made(host, runtime=runtime), "--group-add") == group


@pytest.mark.parametrize("asked", [{}, {"npu": False}, {"runtime": "ascend"}, {"network": "host"}])
def test_every_command_has_the_profiles_shm_and_no_privilege(asked: dict[str, object]) -> None:
    """Cases D05 and D15."""
    container = made(**asked)
    assert words(container, "--shm-size") == ["16g"]
    assert "--privileged" not in docker_arguments(container)


def test_a_missing_path_is_an_error_and_no_empty_folder() -> None:
    container = made()
    assert words(container, "-v") == []
    assert words(container, "--mount")[0] == "type=bind,source=/usr/local/dcmi,target=/usr/local/dcmi,readonly"
    odd = Mount("/home/me/a,b", "/root/.cache/x")
    assert words(made(npu=False, caches=(odd,)), "--mount") == ['type=bind,"source=/home/me/a,b",target=/root/.cache/x']


@pytest.mark.parametrize("source", ["/tmp/c:d", "/tmp/c:d,e", '/tmp/c:"d"', "/tmp/c:ro"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_path_with_a_colon_is_mounted(source: str, read_only: bool) -> None:
    cache, plain = Mount(source, "/root/.cache/huggingface", read_only), Mount("/home/me/ms", "/root/.cache/modelscope")
    container = made(npu=False, caches=(cache, plain))
    value, other = words(container, "--mount")
    (row,) = csv.reader([value])
    wanted = ["type=bind", f"source={source}", "target=/root/.cache/huggingface"]
    assert row == [*wanted, *(["readonly"] if read_only else [])]
    assert other == "type=bind,source=/home/me/ms,target=/root/.cache/modelscope"
    assert words(container, "-v") == []


def test_caches_of_the_user_come_without_npus_too() -> None:
    cache = Mount("/models", "/root/.cache/x", read_only=True)
    container = made(npu=False, caches=(cache,), volumes=("/data:/data",))
    assert words(container, "--mount") == ["type=bind,source=/models,target=/root/.cache/x,readonly"]
    assert words(container, "-v") == ["/data:/data"]


@pytest.mark.parametrize(
    ("volume", "left"),
    [
        ("/usr/local/dcmi:/usr/local/dcmi", [MOUNTS[1], NPU_SMI[0], "/root/.cache/hf"]),
        ("/x:/usr/local/dcmi/:ro", [MOUNTS[1], NPU_SMI[0], "/root/.cache/hf"]),
        ("/usr/local/Ascend/driver:/usr/local/Ascend/driver", [MOUNTS[0], NPU_SMI[0], "/root/.cache/hf"]),
        ("/root/.cache:/root/.cache", [*MOUNTS, NPU_SMI[0]]),
        ("/root/.cache/hf", [*MOUNTS, NPU_SMI[0]]),
        ("/data:/root/.cache/hf/hub", [*MOUNTS, NPU_SMI[0], "/root/.cache/hf"]),
    ],
)
def test_a_volume_of_the_users_takes_the_place_of_a_mount(volume: str, left: list[str]) -> None:
    container = made(caches=(Mount("/home/me/.cache/hf", "/root/.cache/hf"),), volumes=(volume,))
    assert [mount.target for mount in container.mounts] == left
    assert words(container, "-v")[-1] == volume


# Several hosts


def test_one_host_needs_nothing_of_the_network() -> None:
    container = made()
    assert HCCN not in {mount.source for mount in container.driver}
    assert words(container, "--network") == []


def test_the_hosts_network_is_named_with_what_hccl_reads() -> None:
    container = made(network="host", interface=ETH)
    assert words(container, "--network") == ["host"]
    assert words(container, "-e") == [
        "GLOO_SOCKET_IFNAME=eth0",
        "TP_SOCKET_IFNAME=eth0",
        "HCCL_SOCKET_IFNAME=eth0",
    ]
    assert [str(m) for m in container.driver[-2:]] == [f"{HCCN}:{HCCN}:ro", f"{RANKTABLE}:{RANKTABLE}:ro"]
    assert container.notes == ()


def test_several_pods_read_it_too() -> None:
    assert HCCN in {mount.source for mount in made(nodes=2).driver}


def test_a_variable_of_the_user_wins() -> None:
    container = made(network="host", interface=ETH, env=("HCCL_IF_IP=192.0.2.8", "TP_SOCKET_IFNAME"))
    assert words(container, "-e") == [
        "GLOO_SOCKET_IFNAME=eth0",
        "HCCL_SOCKET_IFNAME=eth0",
        "HCCL_IF_IP=192.0.2.8",
        "TP_SOCKET_IFNAME",
    ]


def test_a_missing_hccn_conf_is_a_warning_for_several_hosts_only() -> None:
    host = replace(FULL_A2, paths=FULL_A2.paths - {HCCN})
    assert made(host).notes == ()
    found = made(host, network="host")
    assert found.notes == ()
    assert found.warnings == (f"this host has no {HCCN}: not mounted; HCCL between hosts needs it",)


A3 = ACCESS.model_copy(update={"ranktable": "1.2"})
NONE = ACCESS.model_copy(update={"ranktable": None})


@pytest.mark.parametrize(
    ("access", "version", "asked", "mounted", "note"),
    [
        (ACCESS, "1.0", {"network": "host"}, True, ""),
        (ACCESS, "1.0", {}, False, ""),
        (ACCESS, "1.0", {"runtime": "ascend", "network": "host"}, False, ""),
        (A3, "1.0", {}, False, ""),
        (A3, "1.0", {"network": "host"}, False, "is of version 1.0, HCCL takes 1.2 on this chip: not mounted"),
        (A3, "1.0", {"runtime": "ascend"}, False, "the runtime ascend mounts it anyway, so move it away"),
        (A3, "", {"nodes": 2}, False, "is of no version that can be read, HCCL takes 1.2"),
        (NONE, "1.0", {"network": "host"}, False, "is of version 1.0, none is known for this chip: not mounted"),
        (NONE, "", {"network": "host"}, False, "is of no version that can be read, none is known"),
    ],
)
def test_a_ranktable_of_another_generation_is_left_out(
    access: ChipAccess, version: str, asked: dict[str, object], mounted: bool, note: str
) -> None:
    """Case D10."""
    container = made(replace(FULL_A2, ranktable=version), access, **asked)
    assert (RANKTABLE in {mount.source for mount in container.driver}) == mounted
    assert (note in container.notes[0] and RANKTABLE in container.notes[0]) if note else container.notes == ()


def test_a_host_without_a_ranktable_is_complete() -> None:
    host = replace(FULL_A2, paths=FULL_A2.paths - {RANKTABLE}, ranktable="")
    assert made(host, A3, network="host").notes == ()


# The chip's full model


def test_the_model_is_complete_and_takes_the_hosts_own_places() -> None:
    seen = full_model(ACCESS, None, FULL_A3)
    assert seen.cards == tuple(range(8))
    assert seen.npu_smi == "/usr/local/sbin/npu-smi"
    assert (RANKTABLE in seen.paths, seen.ranktable) == (True, "1.0")
    assert full_model(ACCESS, None, PARTIAL).group == 2000
    assert full_model(ACCESS, None, OTHERWISE).group == 0
    bare = HostNpus(frozenset(), frozenset())
    assert full_model(ACCESS, (3,), bare) == HostNpus(nodes(3), frozenset({*MOUNTS, NPU_SMI[0], HCCN}), DRIVER_GROUP), (
        "a ranktable is no part of the model: few hosts have one"
    )


def test_every_path_that_decides_is_read() -> None:
    assert {RANKTABLE, HCCN, *NPU_SMI, *MOUNTS, *MANAGERS, "/dev/davinci63"} <= set(wanted_paths(ACCESS))


@pytest.mark.parametrize(
    ("host", "cards", "multi", "lacks"),
    [
        (FULL_A2, tuple(range(8)), True, ()),
        (FULL_A2, tuple(range(16)), False, ("cards 8-15",)),
        (PARTIAL, tuple(range(8)), True, ("cards 0-2,5-7", HCCN)),
        (PARTIAL, (3, 4, 5), False, ("card 5",)),
        (OTHERWISE, (0,), False, ("/usr/local/dcmi",)),
        (replace(PARTIAL, nodes=frozenset(MANAGERS)), (0, 1), False, ("/dev/davinci0 …",)),
    ],
)
def test_what_is_missing_on_a_host_of_the_model(
    host: HostNpus, cards: tuple[int, ...], multi: bool, lacks: tuple[str]
) -> None:
    assert lacking(ACCESS, host, cards, multi_node=multi) == lacks


# The working folder


def test_the_working_folder_is_a_path_of_the_container() -> None:
    assert words(made(npu=False, workdir="/data"), "--workdir") == ["/data"]
    assert words(made(npu=False), "--workdir") == []
    for text in ("data", "", "./x"):
        with pytest.raises(UsageError):
            made(npu=False, workdir=text)
