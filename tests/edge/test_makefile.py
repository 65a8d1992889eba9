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
        (folder / "tools/setup_venv.py").write_text("")
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


def test_help_is_the_default_and_every_phony_target_has_its_line(make: Make) -> None:
    assert make().stdout == make("help").stdout
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert sorted(phony[1].split()) == sorted(TARGETS)  # type: ignore[index]


@pytest.mark.parametrize("word", ["PROFIL=quickstart", "chip=a3", "SHELL=/bin/false", "PY=x"])
def test_an_unknown_variable_is_named(make: Make, word: str) -> None:
    done = make("image", "PROFILE=quickstart", word)
    assert done.returncode == 2
    assert f"unknown variable {word.split('=', maxsplit=1)[0]}" in done.stderr
    assert "PROFILE" in done.stderr
    assert not (make.folder / "noted").exists()


@pytest.mark.parametrize(
    "target",
    [
        "show",
        "check",
        "outdated",
        "plan",
        "render",
        "image",
        "verify",
        "run",
        "shell",
        "push",
        "pull",
        "save",
        "bundle",
    ],
)
def test_a_missing_profile_is_said_with_an_example(make: Make, target: str) -> None:
    done = make(target)
    assert done.returncode == 2
    assert f"PROFILE is not set, for example: make {target} PROFILE=quickstart" in done.stderr


@pytest.mark.parametrize("value", NASTY)
def test_values_arrive_as_they_are(make: Make, value: str) -> None:
    done = make("image", f"PROFILE={value}", f"CANN={value}", f"BASE={value}")
    assert done.returncode == 0, done.stderr
    assert make.noted == ["image", value, "--cann", value, "--base", value]


@pytest.mark.parametrize("value", NASTY)
def test_a_containers_command_is_one_word_for_its_shell(make: Make, value: str) -> None:
    done = make("run", "PROFILE=p", "NPUS=0,1", f"CMD={value}")
    assert done.returncode == 0, done.stderr
    assert make.noted == ["run", "p", "--npus", "0,1", "--", "sh", "-c", value]


@pytest.mark.parametrize("value", NASTY)
def test_where_and_how_a_container_runs(make: Make, value: str) -> None:
    words = (
        "NPUS=0-3",
        "NETWORK=host",
        f"INTERFACE={value}",
        "RUNTIME=ascend",
        "FORMAT=raycluster",
        "NODES=4",
        "PRINT=1",
    )
    done = make("run", "PROFILE=p", *words, "DEV=verl-src=/a mindspeed=/b", "CMD=true")
    assert done.returncode == 0, done.stderr
    assert make.noted == [
        *("run", "p", "--npus", "0-3", "--network", "host", "--interface", value, "--runtime", "ascend"),
        *("--format", "raycluster", "--nodes", "4", "--print", "--dev", "verl-src=/a", "--dev", "mindspeed=/b"),
        *("--", "sh", "-c", "true"),
    ]


@pytest.mark.parametrize("value", NASTY)
def test_an_image_of_ones_own(make: Make, value: str) -> None:
    assert make("verify", f"AGAINST={value}").returncode == 0
    assert make.noted == ["verify", "--against", value]
    assert make("verify", f"AGAINST={value}", "PROFILE=p", "CHIP=a3").returncode == 0
    assert make.noted == ["verify", "p", "--chip", "a3", "--against", value]


def test_a_shell(make: Make) -> None:
    assert make("shell", "PROFILE=p", "NPUS=0").returncode == 0
    assert make.noted == ["shell", "p", "--npus", "0"]


def test_a_line_end_is_a_part_of_a_value(make: Make) -> None:
    assert make("image", "PROFILE=a\ntouch injected").returncode == 0
    assert make.noted == ["image", "a\ntouch injected"]


@pytest.mark.parametrize("value", ["; touch injected", "$(shell touch injected)", "`touch injected` 'x y'"])
@pytest.mark.parametrize(
    ("target", "variable"),
    [("lock", "PROFILE"), ("lock", "UPGRADE"), ("clean", "KIND"), ("verify", "ARGS"), ("image", "PIN")],
)
def test_lists_are_words_and_nothing_more(make: Make, target: str, variable: str, value: str) -> None:
    done = make(target, f"{variable}={value}", *(["PROFILE=p"] if target in {"verify", "image"} else []))
    assert done.returncode == 0, done.stderr
    found = [word for word in make.noted[1:] if word not in {"p", "--pin", "--upgrade"}]
    assert found == value.split()


def test_options_of_the_target(make: Make) -> None:
    words = [
        "CHIP=a3",
        "OS=ubuntu22.04",
        "PYTHON=3.11",
        "ARCH=arm64",
        "PIN=a==1 b==2",
        "FORCE=1",
        "ARGS=--no-cache --json",
    ]
    make("image", "PROFILE=q", *words)
    assert make.noted == [
        *("image", "q", "--chip", "a3", "--os", "ubuntu22.04", "--python", "3.11", "--arch", "arm64"),
        *("--pin", "a==1", "--pin", "b==2", "--force", "--no-cache", "--json"),
    ]


@pytest.mark.parametrize("value", NASTY)
def test_sources_from_elsewhere(make: Make, value: str) -> None:
    done = make(
        "image",
        "PROFILE=q",
        "SOURCES=release",
        f"GIT_MIRROR={value}",
        f"SRC_verl-src={value}",
        "SRC_b=/b",
        "DOCUMENTED=1",
    )
    assert done.returncode == 0, done.stderr
    words = make.noted
    assert words[:6] == ["image", "q", "--sources", "release", "--git-mirror", value]
    assert words[6] == "--as-documented"
    assert sorted(zip(words[7::2], words[8::2], strict=True)) == sorted(
        [("--src", f"verl-src={value}"), ("--src", "b=/b")]
    )


@pytest.mark.parametrize("value", NASTY)
def test_shipping(make: Make, value: str) -> None:
    make("push", "PROFILE=q", f"REGISTRY={value}", "FORCE=1")
    assert make.noted == ["push", "q", "--registry", value, "--force"]
    make("bundle", "PROFILE=q", f"OUTPUT={value}", f"SINCE={value}")
    assert make.noted == ["bundle", "q", "--output", value, "--since", value]
    make("image", "PROFILE=q", "REUSE=1", f"REGISTRY={value}")
    assert make.noted == ["image", "q", "--registry", value, "--reuse"]
    make("load", f"FILE={value}")
    assert make.noted == ["load", value]


@pytest.mark.parametrize("value", NASTY)
def test_patches(make: Make, value: str) -> None:
    make("patches")
    assert make.noted == ["patches", "list"]
    make("patches", "PROFILE=q")
    assert make.noted == ["patches", "list", "q"]
    make("patches", "ARGS=port verl a b", f"GIT_MIRROR={value}", f"PATCHES={value}")
    assert make.noted == ["patches", "--git-mirror", value, "--patches", value, "port", "verl", "a", "b"]
    make("patches", "ARGS=summary", "PROFILE=q", f"SRC_verl-src={value}")
    assert make.noted == ["patches", "--src", f"verl-src={value}", "summary", "q"]


def test_a_missing_file_is_said_with_an_example(make: Make) -> None:
    done = make("load")
    assert done.returncode == 2
    assert "FILE is not set, for example: make load FILE=quickstart.tar.gz" in done.stderr


@pytest.mark.parametrize(("value", "is_on"), [("1", True), ("yes", True), ("0", False), ("no", False), ("", False)])
def test_a_switch_is_off_where_it_says_so(make: Make, value: str, is_on: bool) -> None:
    make("image", "PROFILE=q", f"FORCE={value}", f"DOCUMENTED={value}")
    assert make.noted == ["image", "q", *(["--force", "--as-documented"] if is_on else [])]


def test_packages_to_upgrade_are_options_each(make: Make) -> None:
    make("lock", "PROFILE=q", "UPGRADE=torch-npu ray==2.60.0")
    assert make.noted == ["lock", "q", "--upgrade", "torch-npu", "--upgrade", "ray==2.60.0"]
    make("outdated", "PROFILE=q", "ARCH=arm64", "ARGS=--json")
    assert make.noted == ["outdated", "q", "--arch", "arm64", "--json"]


@pytest.mark.parametrize(
    ("target", "words"), [("lock", ["lock"]), ("list", ["list"]), ("engine-stop", ["engine", "stop"])]
)
def test_targets_without_variables(make: Make, target: str, words: list[str]) -> None:
    assert make(target).returncode == 0
    assert make.noted == words


@pytest.mark.parametrize("value", ["/somewhere else/$x", "$(shell touch injected)"])
def test_the_cache_folder_reaches_build_py(make: Make, value: str) -> None:
    make("list", f"CANNERY_CACHE={value}")
    assert make.environment["CANNERY_CACHE"] == value
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


def test_a_failure_of_setup_stops(make: Make) -> None:
    assert make("list", "HOST_PYTHON=false").returncode == 2
    (make.folder / "tools/setup_venv.py").write_text("import sys; sys.exit(7)")
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


def test_lint_run_without_a_command_leaves_the_message_to_build_py(make: Make) -> None:
    assert make("lint-run", "ARGS=--file=x.yaml").returncode == 0
    assert make.noted == ["lint-run", "--file=x.yaml"]


def test_lint_run_takes_a_compose_file(make: Make) -> None:
    assert make("lint-run", "FILE=my compose.yaml", "ARCH=arm64").returncode == 0
    assert make.noted == ["lint-run", "--file", "my compose.yaml", "--arch", "arm64"]


def test_doctor_needs_no_profile(make: Make) -> None:
    assert make("doctor", "ARGS=--root a").returncode == 0
    assert make.noted == ["doctor", "--root", "a"]
    assert make("doctor", "PROFILE=quickstart", "CHIP=a3").returncode == 0
    assert make.noted == ["doctor", "quickstart", "--chip", "a3"]
