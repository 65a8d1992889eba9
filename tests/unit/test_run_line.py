from __future__ import annotations

import re

import pytest

from cannery.errors import UsageError
from cannery.lint.command import NoImage, RunLine, run_lines
from cannery.lint.run_options import ALIASES, SHORT_SWITCHES, SHORT_VALUES, SWITCHES, VALUES

LOOP = "$(for i in 0 1; do echo --device=/dev/davinci$i; done)"


def line(text: str) -> RunLine:
    (found,) = run_lines(text)
    assert isinstance(found, RunLine)
    return found


def settings(text: str) -> list[tuple[str, str | None]]:
    return [(setting.key, setting.value) for setting in line(text).container.settings]


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
    assert line(f"docker run {options} image -v x").container.command == ("-v", "x")


def test_the_options_that_take_a_value_are_spelt_whole() -> None:
    assert {"cpuset-cpus", "device-write-iops", "health-interval", "storage-opt", "pids-limit"} <= VALUES
    assert not SWITCHES & VALUES
    assert all(re.fullmatch(r"[a-z]+(?:-[a-z0-9]+)*[0-9]?", name) for name in SWITCHES | VALUES)
    assert set(SHORT_VALUES.values()) | set(ALIASES.values()) <= VALUES
    assert set(SHORT_SWITCHES.values()) <= SWITCHES


@pytest.mark.parametrize(
    "head",
    ["docker run", "podman run", "sudo -E docker run", "/usr/bin/docker -H tcp://h:1 container run", "nerdctl create"],
)
def test_programs_and_what_stands_before_them(head: str) -> None:
    found = line(f"{head} --rm image")
    assert (found.container.image, found.head) == ("image", tuple(head.split()))


def test_a_script_with_variables() -> None:
    found = line(
        "export NPU=/dev/davinci3\nexport IMAGE=quay.io/a/b:c\n$ docker run --device $NPU $MORE --rm -it $IMAGE bash\n"
    )
    assert found.container.image == "quay.io/a/b:c"
    assert found.container.cards == (3,)
    assert found.container.opaque == ("$MORE",)
    assert found.text({}, ()).split(" \\\n    ") == [
        "docker run", "--device $NPU", "$MORE", "--rm", "-it", "$IMAGE bash",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "opaque", "image"),
    [
        ("$IMAGE bash -c x", (), "$IMAGE"),
        ("$IMAGE --model x", (), "$IMAGE"),
        ("$MORE $IMAGE bash", ("$MORE",), "$IMAGE"),
        ("$MORE --rm image", ("$MORE",), "image"),
        ("$MORE \u2014rm image", ("$MORE",), "image"),
        ("$X bash", (), "$X"),
        ("${X:-} image", ("${X:-}",), "image"),
        ("$X <image> bash", ("$X",), "<image>"),
        ("$X --model x", (), "$X"),
        ("$M --rm $X --model x", ("$M",), "$X"),
        ("$X quay.io/a/b:c bash", ("$X",), "quay.io/a/b:c"),
        ("$(for i in 0 1; do echo --device=/dev/davinci$i; done) image bash", (LOOP,), "image"),
        ("`f -v /a:/b` $IMAGE", ("`f -v /a:/b`",), "$IMAGE"),
        ("$(cat image.txt) bash", (), "$(cat image.txt)"),
        ("${A[@]} --rm image", ("${A[@]}",), "image"),
    ],
)
def test_an_unknown_variable_is_the_image_or_options(words: str, opaque: tuple[str, ...], image: str) -> None:
    found = line(f"docker run {words}").container
    assert (found.opaque, found.image) == (opaque, image)


def test_two_lines_and_other_commands() -> None:
    found = run_lines("docker pull a\ndocker run a\nls\ndocker run -d b && docker ps")
    assert [one.container.image for one in found] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "```bash\ndocker run --rm \\\n  image\n```\n",
        "$ docker run --rm \\\n> image",
        "root@host:~# docker run --rm image",
        "[me@host ~]$ docker run --rm image",
    ],
)
def test_what_is_copied_along_with_a_command_is_left_out(text: str) -> None:
    assert line(text).text({}, ()) == "docker run \\\n    --rm \\\n    image"


@pytest.mark.parametrize(
    "text",
    [
        'ssh -p 22 host "docker run --device /dev/davinci0 image"',
        "sudo su - user -c 'docker run --device /dev/davinci0 image'",
        "ID=$(docker run --device /dev/davinci0 image)",
        "ID=`docker run --device /dev/davinci0 image`; docker logs $ID",
        "RUN='docker run --device /dev/davinci0 image'\n$RUN",
        "ssh host \"sh -c 'docker run --device /dev/davinci0 image'\"",
        "cat > run.sh <<EOF\ndocker run --device /dev/davinci0 image\nEOF",
        "Don't forget:\n```bash\ndocker run --device /dev/davinci0 image\n```\nThat's it.\n~~~\nls\n~~~",
    ],
)
def test_a_line_within_another_text_is_found(text: str) -> None:
    found = line(text).container
    assert (found.image, found.cards) == ("image", (0,))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("docker run -i img python - <<'EOF'\nprint(\"it's\")\n# don't\nEOF\necho ok", ("python", "-")),
        ("cat > notes.md <<-EOF\n\tdon't\n\tEOF\ndocker run img a", ("a",)),
        ('cat > run.sh << "END"\ndocker run \\\n  img a\nEND\nbash run.sh', ("a",)),
        ("ssh host <<EOF\r\ndocker run img a\r\nEOF\r\n", ("a",)),
        ("echo <<X\ndocker run img a", ("a",)),
    ],
)
def test_a_here_document_is_read_only_where_something_is_run_in_it(text: str, command: tuple[str, ...]) -> None:
    (line,) = run_lines(text)
    assert (line.image, line.command) == ("img", command)


def test_a_cut_behind_a_here_document_is_named_by_its_own_line() -> None:
    (line,) = run_lines("cat <<EOF\ndon't\nEOF\ndocker run --rm \\ \n  --init img")
    assert [one.word[:7] for one in line.misread] == ["line 4 "]


def test_a_line_of_the_text_itself_counts_before_those_in_its_words() -> None:
    assert line("docker run image sh -c 'docker run other'").container.image == "image"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("docker exec -it --privileged c bash", "`exec` adds nothing to a container"),
        ("docker compose up -d", "--file compose.yaml"),
        ("docker service create --device /dev/davinci0 image", "swarm maps no devices"),
        ("echo 'docker run \"a'", "for example"),
    ],
)
def test_a_command_that_starts_no_container_says_what_to_give(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="there is no `docker run` in it") as caught:
        run_lines(text)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("docker ps", "there is no `docker run` in it"),
        ("", "there is no `docker run` in it"),
        ("docker run --rm", "no image is named"),
        ("docker run --rm --name image", "no image is named"),
    ],
)
def test_what_is_no_run_line(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        run_lines(text)


@pytest.mark.parametrize(
    ("text", "code", "meant", "key"),
    [
        ("docker run –-device /dev/a image", "run.dash", "--device", "device"),
        ("docker run —device /dev/a image", "run.dash", "--device", "device"),
        ("docker run --devices /dev/a image", "run.option", "--device", "device"),
        ("docker run --priviliged image", "run.option", "--privileged", "privileged"),
    ],
)
def test_misspelt_options_are_named_and_read_as_meant(text: str, code: str, meant: str, key: str) -> None:
    found = line(text)
    assert [(one.code, one.meant) for one in found.misread] == [(code, meant)]
    assert found.container.image == "image"
    assert found.container.settings[0].key == key
    assert not line(found.text({}, ())).misread


def test_a_broken_continuation_is_named_and_read_as_meant() -> None:
    found = line("docker run \\ # why\n --rm \\ \n  --device /dev/davinci0 \\\n  # the image\n  image")
    assert [one.code for one in found.misread] == ["run.cut"] * 3
    assert (found.container.cards, found.container.image) == ((0,), "image")


BLANK = "remove the blank behind the backslash"
END = "end the line with a backslash"


@pytest.mark.parametrize(
    ("text", "line_number", "fix"),
    [
        ("docker run --device /dev/davinci0 \\ \nimg:1 bash", 1, BLANK),
        ("docker run \\\n --device /dev/davinci0 \\ \r\n img:1 \\\r\n bash", 2, BLANK),
        ("docker run --device /dev/davinci0\n img:1 bash", 1, END),
        ("docker run --rm\n --device /dev/davinci0 \\\n img:1 bash", 1, END),
        ("docker run --rm \\\n --device /dev/davinci0 # one\n img:1 bash", 2, END),
        ("docker run --rm \\\n\n --device /dev/davinci0 \\\n img:1 bash", 1, f"take the lines between out, and {END}"),
    ],
)
def test_a_cut_that_loses_the_image_is_named_and_the_rest_read_as_joined(text: str, line_number: int, fix: str) -> None:
    found = line(text)
    assert [(one.code, one.word[:7], one.fix) for one in found.misread] == [("run.cut", f"line {line_number} ", fix)]
    assert (found.container.image, found.container.cards, found.container.command) == ("img:1", (0,), ("bash",))
    assert not line(found.text({}, ())).misread


def test_a_cut_behind_which_no_image_comes_is_named_too() -> None:
    with pytest.raises(UsageError, match="no image is named") as error:
        run_lines("docker run --rm \\ \n --init")
    assert error.value.hint == f"line 1 ends in a backslash and a blank, which is no continuation: {BLANK}"


def test_a_line_without_an_image_does_not_hide_the_others() -> None:
    lost, found = run_lines("sudo docker run --rm -it\ndocker run --rm img")
    hint = "the image stands behind the options; was it taken for the value of the last one?"
    assert lost == NoImage("sudo docker run", hint)
    assert isinstance(found, RunLine)
    assert found.image == "img"


@pytest.mark.parametrize("after", ["docker run -it", "ls -l", "exit", "./x.sh", "A=/b", "/bin/c:d", "- a list"])
def test_another_command_is_no_rest_of_a_line_without_an_image(after: str) -> None:
    with pytest.raises(UsageError, match="no image is named"):
        run_lines(f"docker run --rm\n{after}")


def test_changes_and_additions_are_written_in_their_places() -> None:
    found = line("docker run -it -v a:/b --device /dev/x image sh -c 'a b'")
    volume, device = (found.container.all(key)[0].at for key in ("volume", "device"))
    assert found.text({device: ("--device", "/dev/y"), volume: ()}, [("--shm-size", "1g")]).split(" \\\n    ") == [
        "docker run", "-it", "--device /dev/y", "--shm-size 1g", "image sh -c 'a b'",
    ]  # fmt: skip
