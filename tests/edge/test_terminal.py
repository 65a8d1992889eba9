"""What the terminal gets: width, colours, quiet and verbose, and commands as the user calls them."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cannery import cli
from cannery.cli.arguments import COMMANDS, OF_PROFILE, SYNONYMS, parse
from cannery.cli.output import CleanStream, as_called, wants_color, wrapped
from cannery.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from cannery.context import Context

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANNERY_CACHE", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def on_terminal(*words: str, columns: int = 80, **env: str) -> str:
    """Return what build.py prints where its two streams are a terminal."""
    ours, theirs = pty.openpty()
    inside = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "PYTHONUTF8": "1", **env}
    command = (sys.executable, ROOT / "build.py", *words)
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=inside) as process:
        os.close(theirs)
        found = b""
        try:
            while block := os.read(ours, 65536):
                found += block
        except OSError:  # the other side is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    return found.decode().replace("\r\n", "\n")


# Width


@pytest.mark.parametrize("width", [40, 60, 80])
def test_lines_break_between_words_alone(width: int) -> None:
    line = "    fix: use torch-npu==2.8.0.post2 with torch 2.8.0, or a wheel of manylinux_2_28 with this-very-long-name"
    lines = wrapped(line, width).split("\n")
    assert " ".join(lines).split() == line.split()
    assert all(len(one) <= width for one in lines)
    assert all(one.startswith("    ") for one in lines)


def test_a_row_goes_on_below_its_value() -> None:
    assert (
        wrapped("verify  passed: 12 passed, 3 skipped; NPU", 30) == "verify  passed: 12 passed, 3\n        skipped; NPU"
    )


def test_a_row_of_columns_keeps_them_and_goes_on_below_the_last() -> None:
    row = "  ray-deps   32.0 MB  ffff0a753461  aiohappyeyeballs 2.7.1, aiohttp 3.14.5 and 49 more"
    first, second = wrapped(row, 72).split("\n")
    assert first == "  ray-deps   32.0 MB  ffff0a753461  aiohappyeyeballs 2.7.1, aiohttp"
    assert second == f"{' ' * 36}3.14.5 and 49 more"


def test_words_that_do_not_fit_and_lines_to_copy_stay_whole() -> None:
    assert wrapped("x" * 90, 40) == "x" * 90
    assert wrapped("  | " + "a b " * 30, 40) == "  | " + "a b " * 30
    assert wrapped("  $ docker buildx bake --set image.target=stage image", 40).count("\n") == 0
    assert wrapped("docker run --rm --device /dev/davinci0 -v /usr/local/dcmi:/x image", 40).count("\n") == 0
    assert wrapped("  -v /usr/local/dcmi:/usr/local/dcmi -e A=b \\", 40).count("\n") == 0
    quoted = "run `docker pull quay.io/ascend/cann:8.5.0-910b-ubuntu22.04` first"
    assert wrapped(quoted, 40).split("\n")[1] == "`docker pull quay.io/ascend/cann:8.5.0-910b-ubuntu22.04`"


def test_no_line_of_check_is_wider_than_the_terminal() -> None:
    text = on_terminal("check", "verl-npu", "--arch", "arm64", NO_COLOR="1")
    assert "\x1b" not in text
    lines = text.splitlines()
    assert max(len(line) for line in lines if "/" not in line) <= 80
    assert json.loads(on_terminal("check", "verl-npu", "--arch", "arm64", "--json"))["ok"] is True


# Colours


@pytest.mark.parametrize(
    ("choice", "env", "is_terminal", "colored"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {}, True, False),
    ],
)
def test_who_gets_colours(choice: str, env: dict[str, str], is_terminal: bool, colored: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    assert wants_color(choice, CleanStream(Stream(), str), env) is colored


def test_a_severity_has_its_colour_and_text_from_elsewhere_none() -> None:
    below = io.StringIO()
    stream = CleanStream(below, str)
    stream.color = True
    stream.write("error: \x1b[5mblink\nno error: here\nwarning [pin] x\n")
    assert (
        below.getvalue() == "\x1b[1;31merror\x1b[0m: \\u001b[5mblink\nno error: here\n\x1b[33mwarning\x1b[0m [pin] x\n"
    )


def test_color_always_and_never(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert cli.main(["check", "quickstart", "--color", "always"], ROOT) == 0
    assert "\x1b[36mnote\x1b[0m" in capsys.readouterr().out
    assert cli.main(["check", "quickstart", "--color", "always", "--json"], ROOT) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert cli.main(["--color=never", "check", "quickstart"], ROOT) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert os.environ["NO_COLOR"] == "1"


# Quiet and verbose


def test_quiet_leaves_results_and_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def command(_arguments: object, context: Context) -> int:
        print("data")
        context.say("note")
        return 0

    monkeypatch.setattr("cannery.commands.list.COMMANDS", {"list": command})
    for words in (["-q", "list"], ["list", "--quiet"]):
        assert cli.main(words, ROOT) == 0
        assert capsys.readouterr() == ("data\n", "")
    assert cli.main(["-q", "check", "nothing"], ROOT) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("error: ")


def test_v_is_verbose_before_a_command_and_a_volume_behind_run() -> None:
    found = parse(["-v", "run", "quickstart", "-v", "/a:/b"])
    assert (found.verbose, found.volume) == (True, ["/a:/b"])
    assert parse(["image", "quickstart", "-v"]).verbose


# Names


def test_build_is_image() -> None:
    assert parse(["build", "quickstart"]).command == "image"


@pytest.mark.parametrize(
    ("word", "hint"), [("lsit", "list"), ("rm", "clean"), ("upgrade", "lock"), ("verfy", "verify")]
)
def test_the_hint_for_another_word(word: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse([word])
    assert hint in caught.value.hint.split("`")[-2 if "`" in caught.value.hint else 0]


def test_synonyms_are_of_commands_that_there_are() -> None:
    assert set(SYNONYMS.values()) <= set(COMMANDS)
    assert not set(SYNONYMS) & set(COMMANDS)


def test_a_far_word_is_no_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        parse(["image", "quickstart", "--sbom"], "cannery")
    assert "--json" not in caught.value.hint
    assert "cannery image --help" in caught.value.hint


def test_the_commands_of_one_profile_are_those_of_the_parser() -> None:
    for name in OF_PROFILE:
        assert parse([name, "quickstart"]).profile in ("quickstart", ["quickstart"])


@pytest.mark.parametrize(
    ("program", "text", "shown"),
    [
        ("build.py", "run `python build.py lock x`", "run `python build.py lock x`"),
        ("make", "build.py lock x --python 3.10", "make lock PROFILE=x PYTHON=3.10"),
        ("cannery", "`python build.py lock` for this", "`cannery lock` for this"),
        ("cannery", "`build.py clean out` removes it; build.py lock", "`cannery clean out` removes it; cannery lock"),
        ("cannery", "in a checkout, `make engine-start` starts one", None),
        ("cannery", "run build.py there; make each of them, make images/x.yaml", None),
        ("cannery", "make a lock of your own", None),
        (
            "make",
            "build.py image quickstart, with the same options",
            "make image PROFILE=quickstart, with the same options",
        ),
        ("make", "`build.py doctor` and `build.py clean`", "`make doctor` and `make clean`"),
        ("make", "build.py pull x --registry a/b", "make pull PROFILE=x REGISTRY=a/b"),
        ("make", "build.py pull x --reuse", "python3 build.py pull x --reuse"),
        ("build.py", "then run: build.py lock mine", "then run: python3 build.py lock mine"),
        (
            "build.py",
            "`build.py --help` and python3 build.py show",
            "`python3 build.py --help` and python3 build.py show",
        ),
        ("build.py", "run build.py there; /a/build.py lock, ./build.py lock", None),
        ("make", "then run: build.py lock mine", "then run: make lock PROFILE=mine"),
        ("make", "`build.py check x --chip a3 --pin a==1`", "`make check PROFILE=x PIN=a==1 CHIP=a3`"),
        ("make", "`build.py check x --pin a==1 --pin b==2`", "`make check PROFILE=x PIN='a==1 b==2'`"),
        ("make", "for the first: `--pin a==1 --pin b==2`", "for the first: `PIN='a==1 b==2'`"),
        ("make", "`build.py check x --pin a==1`", "`make check PROFILE=x PIN=a==1`"),
        ("make", "`build.py load /a/B.tar --force`", "`make load FILE=/a/B.tar FORCE=1`"),
        ("make", "`build.py bundle x --output x.tar`", "`make bundle PROFILE=x OUTPUT=x.tar`"),
        ("make", "`build.py lint-run --file run.sh`", "`make lint-run FILE=run.sh`"),
        ("make", "build.py lint-run 'docker run …'", "make lint-run CMD='docker run …'"),
        ("make", "`build.py clean trials out` removes these", "`make clean KIND='trials out'` removes these"),
        ("make", "build.py run mounts it there", "python3 build.py run mounts it there"),
    ],
)
def test_commands_in_messages_are_the_user_s(program: str, text: str, shown: str | None) -> None:
    assert as_called(text, program, COMMANDS, OF_PROFILE) == (text if shown is None else shown)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_names_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["completion", shell], ROOT) == 0
    script = capsys.readouterr().out
    assert "cannery" in script
    assert "--no-cache" in script
    if shell == "bash":
        test = f"{script}\nCOMP_WORDS=(cannery ima); COMP_CWORD=1; _shtab_cannery cannery ima; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(("bash", "-c", test), capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["image"]


def test_version_is_printed_without_the_parser() -> None:
    code = "import sys; from cannery import __main__; sys.argv[1:] = ['--version']; __main__.console()"
    words = (sys.executable, "-c", f"{code}; print('argparse' in sys.modules)")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].startswith("cannery ")
    assert done.stdout.splitlines()[1] == "False"
