from __future__ import annotations

import re

import pytest

from cannery.errors import UsageError
from cannery.lint.command import ALIASES, SHORT_SWITCHES, SHORT_VALUES, SWITCHES, VALUES, run_lines
from cannery.lint.container import Container, Remark

LOOP = "$(for i in 0 1; do echo --device=/dev/davinci$i; done)"


def line(text: str) -> Container:
    (found,) = run_lines(text).lines
    assert isinstance(found, Container)
    return found


def settings(text: str) -> list[tuple[str, str | None]]:
    return [(setting.key, setting.value) for setting in line(text).settings]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--device /dev/a --device=/dev/b", [("device", "/dev/a"), ("device", "/dev/b")]),
        ("-itd", [("interactive", None), ("tty", None), ("detach", None)]),
        ("-itv /a:/b", [("interactive", None), ("tty", None), ("volume", "/a:/b")]),
        ("-v/a:/b -eA=1 -e=B=2 -e C", [("volume", "/a:/b"), ("env", "A=1"), ("env", "B=2"), ("env", "C")]),
        ("--net host --network=none --net=x", [("network", "host"), ("network", "none"), ("network", "x")]),
        ("--privileged=true --rm --init", [("privileged", "true"), ("rm", None), ("init", None)]),
        ("-u 1:2 -m 4g -w /w", [("user", "1:2"), ("memory", "4g"), ("workdir", "/w")]),
        ("--mount type=bind,src=/a,dst=/b --gpus all", [("mount", "type=bind,src=/a,dst=/b"), ("gpus", "all")]),
    ],
)
def test_spellings_of_options(options: str, expected: list[tuple[str, str | None]]) -> None:
    assert settings(f"docker run {options} image -v x") == expected
    assert line(f"docker run {options} image -v x").command == ("-v", "x")


def test_the_options_that_take_a_value_are_spelt_whole() -> None:
    assert {"cpuset-cpus", "device-write-iops", "health-interval", "storage-opt", "pids-limit"} <= VALUES
    assert not SWITCHES & VALUES
    assert all(re.fullmatch(r"[a-z]+(?:-[a-z0-9]+)*[0-9]?", name) for name in SWITCHES | VALUES)
    assert set(SHORT_VALUES.values()) | set(ALIASES.values()) <= VALUES
    assert set(SHORT_SWITCHES.values()) <= SWITCHES


@pytest.mark.parametrize(
    "head",
    [
        "docker run",
        "podman run",
        "$DOCKER run",
        "sudo ${DOCKER_CMD} run",
        "sudo -E docker run",
        "/usr/bin/docker -H tcp://h:1 container run",
        "nerdctl create",
        "timeout 5 docker run",
        "ssh host docker run",
        "if ! docker run",
        "DEBUG=1 docker run",
        "- docker run",
    ],
)
def test_programs_and_what_comes_before_them(head: str) -> None:
    assert line(f"{head} --rm image").image == "image"


@pytest.mark.parametrize(
    "text",
    ["$ docker run --rm \\\n> image", "root@host:~# docker run --rm image", "[me@host ~]$ docker run --rm image"],
)
def test_a_prompt_that_is_copied_along_is_left_out(text: str) -> None:
    assert line(text).image == "image"


def test_a_script_with_variables() -> None:
    text = "export NPU=/dev/davinci3\nexport IMAGE=quay.io/a/b:c\ndocker run --device $NPU $MORE --rm -it $IMAGE bash\n"
    found = line(text)
    assert (found.image, found.cards, found.opaque) == ("quay.io/a/b:c", (3,), ("$MORE",))
    assert (found.command, found.line) == (("bash",), 3)


@pytest.mark.parametrize(
    ("words", "opaque", "image"),
    [
        ("$IMAGE bash -c x", (), "$IMAGE"),
        ("$IMAGE --model x", (), "$IMAGE"),
        ("$MORE $IMAGE bash", ("$MORE",), "$IMAGE"),
        ("$MORE --rm image", ("$MORE",), "image"),
        ("$X bash", (), "$X"),
        ("${X:-} image", ("${X:-}",), "image"),
        ("$X <image> bash", ("$X",), "<image>"),
        ("$X --model x", (), "$X"),
        ("$M --rm $X --model x", ("$M",), "$X"),
        ("$X quay.io/a/b:c bash", ("$X",), "quay.io/a/b:c"),
        (f"{LOOP} image bash", (LOOP,), "image"),
        ("`f -v /a:/b` $IMAGE", ("`f -v /a:/b`",), "$IMAGE"),
        ("$(cat image.txt) bash", (), "$(cat image.txt)"),
        ('"${A[@]}" image', ("${A[@]}",), "image"),
    ],
)
def test_an_unknown_variable_is_the_image_or_options(words: str, opaque: tuple[str, ...], image: str) -> None:
    found = line(f"docker run {words}")
    assert (found.opaque, found.image) == (opaque, image)


def test_two_lines_and_other_commands() -> None:
    found = run_lines("docker pull a\ndocker run a\nls\ndocker run -d b && docker ps")
    assert [one.image for one in found.lines if isinstance(one, Container)] == ["a", "b"]
    assert found.unread == ()


@pytest.mark.parametrize(
    "text",
    [
        'ssh -p 22 host "docker run --device /dev/davinci0 image"',
        "ID=$(docker run --device /dev/davinci0 image)",
        "RUN='docker run --device /dev/davinci0 image'",
        "echo don't; docker run image",
        "you start it by docker run later",
        "echo docker run image",
    ],
)
def test_a_line_within_another_text_is_not_read_and_never_passes_in_silence(text: str) -> None:
    found = run_lines(f"docker run a\n{text}")
    assert [one.line for one in found.unread] == [2]
    with pytest.raises(UsageError) as caught:
        run_lines(f"\n{text}")
    assert "the command:2: " in str(caught.value)


def test_a_line_in_the_containers_command_is_that_containers() -> None:
    found = run_lines("docker run image sh -c 'docker run other'")
    assert (len(found.lines), found.unread) == (1, ())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("docker compose up -d", "--file compose.yaml"),
        ("docker ps", "a plain docker run line"),
        ("", "a plain docker run line"),
    ],
)
def test_a_command_that_starts_no_container_gets_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="there is no `docker run` in it") as caught:
        run_lines(text)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["docker run --rm", "docker run --rm --name image", "docker run --rm\nls -l"])
def test_a_line_without_an_image(text: str) -> None:
    with pytest.raises(UsageError, match="no image is named"):
        run_lines(text)


@pytest.mark.parametrize(
    ("text", "code", "fix", "key"),
    [
        ("docker run --devices /dev/a image", "option", "--device", "device"),
        ("docker run --priviliged image", "option", "--privileged", "privileged"),
    ],
)
def test_misspelt_options_are_named_and_read_as_meant(text: str, code: str, fix: str, key: str) -> None:
    found = line(text)
    assert [(one.code, one.fix) for one in found.misread] == [(f"run.{code}", fix)]
    assert (found.image, [setting.key for setting in found.settings]) == ("image", [key])


def test_a_broken_continuation_is_named_and_read_as_meant() -> None:
    found = line("docker run \\ # why\n --rm \\ \n  --device /dev/davinci0 \\\n  # the image\n  image")
    assert [(one.code, one.word[:6]) for one in found.misread] == [("run.cut", f"line {n}") for n in (1, 2, 4)]
    assert (found.cards, found.image) == ((0,), "image")


def test_a_cut_after_which_no_image_comes_is_the_hint() -> None:
    with pytest.raises(UsageError, match="no image is named") as error:
        run_lines("docker run --rm \\ \n --init")
    assert "line 1 " in (error.value.hint or "")


def test_a_line_without_an_image_does_not_hide_the_others() -> None:
    lost, found = run_lines("sudo docker run --rm -it\ndocker run --rm img").lines
    assert isinstance(lost, Remark)
    assert (lost.code, lost.word) == ("run.image.none", "docker run")
    assert isinstance(found, Container)
    assert found.image == "img"


def test_a_pasted_pull_is_named_and_the_image_after_it_counts() -> None:
    found = line("docker run -it --entrypoint=/bin/bash docker pull a/b:1 x")
    assert [(one.code, one.word) for one in found.misread] == [("run.image.pasted", "docker pull")]
    assert (found.image, found.command) == ("a/b:1", ("x",))
    sudo = line("docker run -it sudo docker pull a/b:1 x")
    assert [(one.code, one.word) for one in sudo.misread] == [("run.image.pasted", "sudo docker pull")]
    assert (sudo.image, sudo.command) == ("a/b:1", ("x",))
    assert line("docker run sudo docker").misread == ()
    inside = line("docker run -v /var/run/docker.sock:/var/run/docker.sock docker pull a/b:1")
    assert (inside.misread, inside.image) == ((), "docker")
