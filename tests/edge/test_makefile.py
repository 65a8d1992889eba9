"""The Makefile with a Python that only notes its arguments: what reaches build.py, and that nothing else does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import make_command
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z-]+):.*?## ", MAKEFILE, re.MULTILINE)
NASTY = [
    *("a b", "it's", 'say "x"', "a\\", "#c", "*", "%", "ü", "$x", "$$", "$HOME"),
    *("$(shell touch injected)", "`touch injected`", "; touch injected"),
]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this host: its user cannot use it")


class Make:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(ROOT / "Makefile", folder)
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools/make_command.py", folder / "tools")
        (folder / "tools/setup_venv.py").write_text("OLDEST = (3, 11)\ndef current(files): return True\n")
        python = folder / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        noted = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('noted', 'w'))"
        python.write_text(f'#!/bin/sh\nexec python3 -c "{noted}" "$@"\n')
        python.chmod(0o755)

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "noted").unlink(missing_ok=True)
        command = ["make", "--no-print-directory", *words]
        clean = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", **env}
        done = subprocess.run(command, cwd=self.folder, env=clean, capture_output=True, text=True, check=False)
        assert not (self.folder / "injected").exists()
        return done

    @property
    def noted(self) -> list[str]:
        words, _ = json.loads((self.folder / "noted").read_text())
        assert words[0] == str(self.folder / "build.py")
        return list(words[1:])

    @property
    def environment(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "noted").read_text())[1])


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return Make(tmp_path)


def test_help_prints_every_target_and_every_variable(make: Make) -> None:
    text = make("help").stdout
    assert len(TARGETS) > 15
    for target in TARGETS:
        assert f"  make {target} " in text
    for word in make_command.KNOWN:
        assert re.search(rf"\b{word}=", text), word
    assert max(map(len, text.splitlines())) <= 80


def test_help_is_the_default_and_every_phony_target_has_its_line(make: Make) -> None:
    assert make().stdout == make("help").stdout
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert sorted(phony[1].split()) == sorted(TARGETS)  # type: ignore[index]


@pytest.mark.parametrize(
    ("word", "near"),
    [("PROFIL=quickstart", "PROFILE"), ("chip=a3", "CHIP"), ("SHELL=/bin/false", ""), ("PY=x", ""), ("PINN=x", "PIN")],
)
def test_an_unknown_variable_is_named(make: Make, word: str, near: str) -> None:
    done = make("image", "PROFILE=quickstart", word)
    assert done.returncode == 2
    assert f"unknown variable {word.split('=', maxsplit=1)[0]}" in done.stderr
    assert (f"did you mean {near}?\n" if near else "; known: CANN ") in done.stderr
    assert not (make.folder / "noted").exists()


def test_every_target_of_a_command_calls_it_by_its_name() -> None:
    called = re.findall(r"^([a-z-]+):.*\n\t\$\(RUN\) (\S+)$", MAKEFILE, re.MULTILINE)
    assert [target for target, _ in called] == [command for _, command in called]
    assert {*make_command.NEED_PROFILE, "list", "lock", "load", "lint-run"} < {target for target, _ in called}


def test_what_is_missing_is_reported_before_anything_runs(make: Make) -> None:
    done = make("image")
    assert (done.returncode, "PROFILE is not set" in done.stderr) == (2, True)
    assert not (make.folder / "noted").exists()


@pytest.mark.parametrize("value", NASTY)
def test_values_arrive_as_they_are(make: Make, value: str) -> None:
    given = (f"PROFILE={value}", f"CANN={value}", f"BASE={value}", f"SRC_verl-src={value}", f"CMD={value}")
    done = make("run", *given)
    assert done.returncode == 0, done.stderr
    options = ["--cann", value, "--base", value, "--src", f"verl-src={value}"]
    assert make.noted == ["run", value, *options, "--", "sh", "-c", value]


def test_a_line_end_is_a_part_of_a_value(make: Make) -> None:
    assert make("check", "PROFILE=a\ntouch injected").returncode == 0
    assert make.noted == ["check", "a\ntouch injected"]


def test_an_image_takes_several_profiles(make: Make) -> None:
    assert make("image", "PROFILE=a b", "CHIP=910b,a3", "KEEP_GOING=1", "PUSH=1", "REGISTRY=r/x").returncode == 0
    assert make.noted == ["image", "a", "b", "--chip", "910b,a3", "--registry", "r/x", "--push", "--keep-going"]


@pytest.mark.parametrize("value", ["; touch injected", "$(shell touch injected)", "`touch injected` 'x y'"])
@pytest.mark.parametrize(
    ("target", "variable"),
    [("lock", "PROFILE"), ("clean", "KIND"), ("verify", "ARGS"), ("image", "PIN")],
)
def test_lists_are_words_and_nothing_more(make: Make, target: str, variable: str, value: str) -> None:
    done = make(target, f"{variable}={value}", *(["PROFILE=p"] if target in {"verify", "image"} else []))
    assert done.returncode == 0, done.stderr
    found = [word for word in make.noted[1:] if word not in {"p", "--pin"}]
    assert found == value.split()


@pytest.mark.parametrize("value", ["/somewhere else/$x", "$(shell touch injected)"])
def test_the_cache_folder_reaches_build_py(make: Make, value: str) -> None:
    make("list", f"CANNERY_CACHE={value}")
    assert make.environment["CANNERY_CACHE"] == value
    make("list", "MAX_JOBS=4")
    assert make.environment["MAX_JOBS"] == "4"
    make("list", CANNERY_CACHE="/from/the environment")
    assert make.environment["CANNERY_CACHE"] == "/from/the environment"


def test_the_environment_gives_no_option_and_gets_no_variable(make: Make) -> None:
    assert make("image", "PROFILE=q", "CHIP=a3", PYTHON="3.9", OS="Linux", CANN="1", FORCE="1").returncode == 0
    assert make.noted == ["image", "q", "--chip", "a3"]
    assert not {"PROFILE", "CHIP", "MAKEFLAGS"} & make.environment.keys()
    assert make.environment["CANNERY_PROGRAM"] == "make"


def test_a_failure_of_build_py_is_a_failure(make: Make) -> None:
    (make.folder / ".venv/bin/python").write_text("#!/bin/sh\nexit 3\n")
    done = make("list")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("list] Error 3")


@pytest.mark.parametrize("name", ["no-such-python", "/no/such/python3.11"])
@pytest.mark.parametrize("target", ["list", "setup"])
def test_a_host_python_that_is_not_there_is_named(make: Make, name: str, target: str) -> None:
    done = make(target, f"HOST_PYTHON={name}")
    assert done.returncode == 2
    assert f"HOST_PYTHON: there is no program {name}" in done.stderr
    assert "Error 127" not in done.stderr


def test_a_failure_of_setup_stops(make: Make) -> None:
    assert make("list", "HOST_PYTHON=false").returncode == 2
    text = "import sys\nOLDEST = (3, 11)\ndef current(files): return False\nif __name__ == '__main__': sys.exit(7)\n"
    (make.folder / "tools/setup_venv.py").write_text(text)
    done = make("list")
    assert (done.returncode, done.stderr.splitlines()[-1].endswith("list] Error 7")) == (2, True)
    assert not (make.folder / "noted").exists()


@pytest.mark.parametrize("text", ["docker run a", "docker run \\\n  -e 'A=$$x' \\\n  $IMAGE; touch injected"])
def test_a_command_of_several_lines_reaches_lint_run_as_it_is(make: Make, text: str) -> None:
    python = make.folder / ".venv/bin/python"
    python.write_text('#!/bin/sh\ncat > input\necho "$@" > words\n')
    assert make("lint-run", f"CMD={text}", "CHIP=a3").returncode == 0
    assert (make.folder / "input").read_text() == text
    assert (make.folder / "words").read_text() == f"{make.folder}/build.py lint-run - --chip a3\n"


def test_a_command_of_several_lines_reaches_run_as_it_is(make: Make) -> None:
    text = "line1 'a'\nline2 $HOME \"$$x\"; touch injected\n\n  line3"
    assert make("run", "PROFILE=quickstart", "PRINT=1", f"CMD={text}").returncode == 0
    assert make.noted == ["run", "quickstart", "--print", "--", "sh", "-c", text]
