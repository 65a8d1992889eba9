"""build.py's commands on a copied checkout: what they print, and the exit code of every kind of bad input."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from checkouts import copy_checkout, incomplete, quickstart_packages, write_lock
from rich.console import Console

from cannery import cli
from cannery.catalog.io.read import load_catalog
from cannery.cli import arguments, options
from cannery.cli.output import CleanStream, clean_streams
from cannery.errors import ExitCode, UnableError, UsageError
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Build:
    """build.py on a copy of the checkout, with a cache of its own and nothing of the host's pip settings."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.capture = capture

    def __call__(self, *words: str) -> Done:
        self.capture.readouterr()
        code = cli.main(words, self.root)
        text = self.capture.readouterr()
        assert "Traceback" not in text.out + text.err
        return Done(code, text.out, text.err)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / "images" / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def build(pristine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Build:
    root = tmp_path / "checkout"
    shutil.copytree(pristine, root)
    monkeypatch.setenv("CANNERY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.chdir(tmp_path)
    return Build(root, capsys)


# Data commands


def test_list_names_every_profile(build: Build) -> None:
    done = build("list")
    assert done.code == 0
    assert "quickstart" in done.out
    rows = json.loads(build("list", "--json").out)
    assert {"name", "summary", "target"} <= set(rows[0])


def test_list_says_how_to_come_to_a_further_python(build: Build) -> None:
    lines = build("list").out.splitlines()
    others = [line.split()[1:] for line in lines if line.split()[0] == "also"]
    assert others == [["PYTHON=3.11"], ["OS=manylinux_2_28", "PYTHON=3.10"]]
    rows = {row["name"]: row["pythons"] for row in json.loads(build("list", "--json").out)}
    assert rows["mindspeed-rl"] == [{"python": "3.11", "os": "ubuntu22.04"}]
    assert rows["verl-npu"] == [{"python": "3.10", "os": "manylinux_2_28"}]
    assert rows["quickstart"] == []


def test_show_names_components_and_reasons(build: Build) -> None:
    done = build("show", "quickstart")
    assert done.code == 0
    assert "2.13.0+cpu" in done.out
    assert "because: plugins ask" in done.out
    names = [row["name"] for row in json.loads(build("show", "quickstart", "--json").out)["components"]]
    assert names == sorted(set(names), key=names.index)
    assert "torch-npu" in names


@pytest.mark.parametrize(("arch", "torch"), [("amd64", "2.7.1+cpu"), ("arm64", "2.7.1")])
def test_show_takes_a_target(build: Build, arch: str, torch: str) -> None:
    done = build("show", "verl-npu", "--arch", arch, "--json")
    pins = {row["name"]: row["pin"] for row in json.loads(done.out)["components"]}
    assert (done.code, pins["torch"]) == (0, torch)
    assert "\ndriver: 25.0.rc1 or newer, which mindspeed-rl 2.0.0 asks for\n" in build("show", "mindspeed-rl").out


def test_check_of_a_set_without_errors(build: Build) -> None:
    done = build("check", "quickstart")
    assert done.code == 0, done
    assert "no errors" in done.out
    assert json.loads(build("check", "quickstart", "--json").out)["ok"] is True


def test_plan_prints_layers_and_fetches_nothing(build: Build, tmp_path: Path) -> None:
    done = build("plan", "quickstart")
    assert done.code == 0, done
    assert "torch-npu" in done.out
    value = json.loads(build("plan", "quickstart", "--json").out)
    assert value["reference"] in done.out
    assert [layer["name"] for layer in value["layers"]][-1] == "files"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["catalog"]


def test_the_two_arches_plan_one_tag(build: Build) -> None:
    tags = {
        json.loads(build("plan", "quickstart", "--json", "--arch", a).out)["reference"] for a in ("amd64", "aarch64")
    }
    assert len(tags) == 1


def test_run_prints_the_command_for_the_full_model(build: Build) -> None:
    done = build("run", "quickstart", "--print", "--npus", "0,2", "--name", "mine", "--", "python", "--print", "x y")
    assert done.code == 0, done
    text = done.out.replace("\\\n", " ")
    assert "--device /dev/davinci0" in text
    assert "/dev/davinci1 " not in text
    assert "--name mine" in text
    assert shlex.split(text)[-3:] == ["python", "--print", "x y"]
    assert "--privileged" not in text
    assert "--network" not in text


def test_run_options_may_stand_before_or_behind_the_profile(build: Build) -> None:
    assert (
        build("run", "--npus=none", "--print", "quickstart").out
        == build("run", "quickstart", "--print", "--npus", "none").out
    )


# Wrong use: exit code 2


def option_names() -> list[tuple[str, str]]:
    """Every option that takes a value, with its command."""
    return [
        (command, option)
        for command, parser in arguments._children(arguments.make_parser()).items()
        for action in parser._actions
        for option in action.option_strings
        if action.nargs != 0
    ]


def test_dashes_are_no_options_value() -> None:
    """argparse removes `--` from `--name=--`: the value became an empty list."""
    for command, option in option_names():
        words = (f"{option}=--",) if option.startswith("--") else (f"{option}--",)
        for line in (words, (option, "--")):
            with pytest.raises(UsageError):
                arguments.parse([command, "x", *line])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "quikstart"], ["no profile 'quikstart'", "quickstart"]),
        (["lock", "quikstart"], ["no profile 'quikstart'", "quickstart"]),
        (["chekc", "quickstart"], ["'chekc'", "check"]),
        (["check"], ["PROFILE", "build.py check --help"]),
        (["check", "quickstart", "--chpi", "a3"], ["--chpi", "--chip"]),
        (["check", "quickstart", "--chpi=a3"], ["unknown option --chpi", "--chip"]),
        (
            ["verify", "quickstart", "--verify-again"],
            ["unknown option --verify-again", "image takes it, verify does not"],
        ),
        (["list", "--no-cache"], ["unknown option --no-cache", "image takes it, list does not"]),
        (
            ["list", "--chip=a3"],
            ["unknown option --chip", "show, check, lock, outdated, ", " take it, list does not"],
        ),
        (["--no-verify"], ["unknown option --no-verify", "image takes it, build.py does not"]),
        (["--jsn"], ["unknown option --jsn"]),
        (["check", "quickstart", "more"], ["'more'"]),
        (["check", "quickstart", "--chip"], ["--chip"]),
        (["check", "quickstart", "--chip", "910c9"], ["CHIP: '910c9'", "910"]),
        (["check", "quickstart", "--arch", "riscv64"], ["ARCH: 'riscv64'"]),
        (["check", "quickstart", "--os", "beos"], ["OS: 'beos'", "ubuntu22.04"]),
        *(
            (["check", name, "--os", "ubunut22.04"], ["OS: 'ubunut22.04' is not known", "did you mean ubuntu22.04?"])
            for name in ("quickstart", "verl-npu")
        ),
        (["check", "verl-npu", "--os", "OpenEular24.03"], ["OS: 'openeular24.03'", "did you mean openeuler24.03"]),
        (["check", "quickstart", "--python", "3"], ["PYTHON: '3'"]),
        (["lock", "--python", "riscv64"], ["PYTHON: 'riscv64'"]),
        (["lock", "--os", "beos"], ["OS: 'beos'", "ubuntu22.04"]),
        (["lock", "--arch", "s390x"], ["ARCH: 's390x'"]),
        (["lock", "quickstart", "--pin", "torch"], ["'torch' is not NAME==VERSION"]),
        (["check", "quickstart", "--os=--"], ["--os: '--' is not a value"]),
        (["run", "quickstart", "-e--"], ["-e/--env: '--' is not a value"]),
        (["check", "quickstart", "--cann", "8.5"], ["CANN: '8.5'", "8.5.0"]),
        (["check", "quickstart", "--base", "stadnin"], ["BASE: 'stadnin'", "standin"]),
        (["check", "quickstart", "--pin", "torch"], ["--pin: 'torch' is not NAME==VERSION", "--pin ray=="]),
        (["check", "quickstart", "--pin", "torch=2"], ["'torch=2'"]),
        (["check", "quickstart", "--pin", "a==1,b==2"], ["separated by spaces: `--pin a==1 --pin b==2`"]),
        (["check", "quickstart", "--pin", "trch==2.9.0"], ["trch is not a package of this profile", "torch"]),
        (["check", "quickstart", "--pin", "ray==1", "--pin", "Ray==2"], ["pinned twice"]),
        (["check", "quickstart", "--upgrade", "ray"], ["unknown option --upgrade"]),
        (["outdated", "quikstart"], ["no profile 'quikstart'", "quickstart"]),
        (["outdated", "quickstart", "--force"], ["unknown option --force"]),
        (["lock", "quickstart", "--upgrade", "ray"], ["unknown option --upgrade", "`outdated` prints"]),
        (["run", "quickstart", "--npus", "0;1", "--print"], ["NPUS: '0;1'", "0,1,4-7"]),
        (["run", "quickstart", "bash"], ["'bash'", "--"]),
        (["list", "--", "x"], ["'x'"]),
        (["clean", "whels"], ["KIND: 'whels'", "wheels"]),
        (["engine", "stat"], ["'engine' is not known", "make engine-start"]),
        (["completion"], ["shell"]),
        (["patches"], ["ACTION", "build.py patches --help"]),
        (["patches", "summry"], ["'summry' is not known", "summary"]),
        (
            ["patches", "list", "--tree", "x"],
            ["unknown option --tree", "patches new takes it, patches list does not"],
        ),
        (["patches", "port", "verl", "a", "b", "--chip=a3"], ["unknown option --chip", "and patches summary take it"]),
        (["patches", "new", "verl", "796871d7d"], ["build.py patches new: one word too many: '796871d7d'"]),
        (["verify", "quickstart", "--level", "npus"], ["'npus'", "npu"]),
        (
            ["verify", "quickstart", "--image", "host/x:1?token=word"],
            ["--image: an image reference has no query"],
        ),
        *(
            (["verify", "quickstart", f"--image={text}"], ["--image: ", "is not an image reference"])
            for text in ("", "Foo:1", "foo:", "foo:" + "x" * 129, "host.example/A/b:1")
        ),
        (["check", "quickstart", "--base", "host/x:1?token=word"], ["BASE: an image reference has no query or"]),
        (["verify", "quickstart", "--level", "trains"], ["'trains'", "train"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_use(build: Build, words: list[str], says: list[str]) -> None:
    done = build(*words)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert done.err.startswith("error: ")
    assert all(word in done.err for word in says), done.err
    assert "[]" not in done.err
    assert "token" not in done.err


def test_a_pin_may_name_a_package_of_the_lock(build: Build) -> None:
    done = build("check", "quickstart", "--pin", "cilck==8.1.0")
    assert (done.code, "click" in done.err) == (ExitCode.USAGE, True)


def test_no_command_prints_help_and_is_wrong_use(build: Build) -> None:
    done = build()
    assert done.code == ExitCode.USAGE
    assert "quickstart" not in done.err
    assert "image" in done.out


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("profiles/quickstart.yaml", 'python: "3.11"', "python: yes", "quote it"),
        ("profiles/quickstart.yaml", "shm_size:", "shm_sise:", "did you mean shm_size"),
        ("profiles/quickstart.yaml", "components:", "components: [", "broken YAML"),
        ("profiles/quickstart.yaml", "base: standin", "base: standin\nbase: cann", "key 'base' is given twice"),
    ],
)
def test_a_broken_catalog_file_is_named_with_its_line(build: Build, name: str, old: str, new: str, says: str) -> None:
    build.edit(name, old, new)
    done = build("check", "quickstart")
    assert done.code == ExitCode.USAGE
    assert f"images/{name}:" in done.err
    assert says in done.err
    assert str(build.root) not in done.err, "named as in the repository"


def test_the_json_form_of_an_error(build: Build) -> None:
    done = build("check", "quikstart", "--json")
    value = json.loads(done.out)
    assert (done.code, value["exit_code"]) == (2, 2)
    assert value["error"] == "no profile 'quikstart'"
    assert "quickstart" in value["hint"]
    assert done.err.startswith("error: ")


# Findings: exit code 3


def test_a_pair_that_does_not_fit_is_refused_by_name(build: Build) -> None:
    done = build("check", "quickstart", "--pin", "torch_npu==2.14.0")
    assert done.code == ExitCode.FINDINGS
    assert "error [fit] torch 2.13.0 and torch-npu 2.14.0 do not fit" in done.out
    assert "fix: use torch" in done.out
    assert json.loads(build("check", "quickstart", "--pin", "torch_npu==2.14.0", "--json").out)["ok"] is False
    plan = build("plan", "quickstart", "--pin", "torch_npu==2.14.0")
    assert (plan.code, plan.out) == (ExitCode.FINDINGS, "")
    assert "fit" in plan.err


@pytest.mark.parametrize("command", ["check", "plan", "render"])
def test_a_missing_lock(build: Build, command: str) -> None:
    (build.root / "images/locks/quickstart/py3.11-amd64.txt").unlink()
    done = build(command, "quickstart")
    text = done.out + done.err
    assert done.code == ExitCode.FINDINGS
    assert "the lock is missing" in text
    assert text.count("build.py lock quickstart") == 1


def test_a_missing_lock_of_another_arch_stops_the_plan(build: Build) -> None:
    (build.root / "images/locks/quickstart/py3.11-arm64.txt").unlink()
    done = build("plan", "quickstart")
    assert done.code == ExitCode.FINDINGS
    assert "arm64" in done.err


def test_a_stale_lock(build: Build) -> None:
    build.edit("profiles/quickstart.yaml", '"2026-11-20"', '"2026-11-21"')
    done = build("check", "quickstart")
    assert done.code == ExitCode.FINDINGS
    assert "the lock is stale" in done.out


def test_a_missing_lock_of_the_build_tools(build: Build) -> None:
    (build.root / "images/locks/_tools/py3.11-amd64.txt").unlink()
    done = build("plan", "quickstart")
    assert done.code == ExitCode.FINDINGS
    assert "build tools" in done.err


def test_a_lock_edited_by_hand_is_named_with_its_line(build: Build) -> None:
    path = build.root / "images/locks/quickstart/py3.11-amd64.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("absl-py==1.0", "absl-py>=1.0"), encoding="utf-8")
    done = build("check", "quickstart")
    assert done.code == ExitCode.USAGE
    assert "images/locks/quickstart/py3.11-amd64.txt:2" in done.err


def test_an_incomplete_lock_can_be_checked_and_planned_and_not_built(build: Build) -> None:
    recipe = select(load_catalog(build.root / "images"), "quickstart", Options(), Arch.AMD64)
    write_lock(build.root, lock_request(recipe), incomplete(quickstart_packages(Arch.AMD64), "torch"))
    check = build("check", "quickstart")
    assert check.code == 0
    assert "warning [lock-incomplete] the lock has no hash of torch 2.13.0+cpu" in check.out
    assert build("plan", "quickstart").code == 0
    image = build("image", "quickstart", "--locked")
    assert image.code == ExitCode.FINDINGS
    assert "https://download.pytorch.org/whl/cpu/torch/" in image.err


def test_the_stand_in_has_one_python(build: Build) -> None:
    done = build("check", "quickstart", "--python", "3.10")
    assert done.code == ExitCode.FINDINGS
    assert "only Python 3.11" in done.err


# Everything else


def test_a_folder_with_other_things_in_it_is_not_rendered_over(build: Build, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    done = build("render", "quickstart", "--output", str(mine))
    assert done.code == ExitCode.USAGE
    assert "Cannery has not rendered" in done.err
    assert [p.name for p in mine.iterdir()] == ["thesis.txt"]


def test_a_cpu_that_no_image_is_made_for(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    done = build("list")
    assert (done.code, "riscv64" in done.err) == (ExitCode.UNABLE, True)


@pytest.mark.parametrize("name", sorted(arguments.COMMANDS))
def test_help_of_every_command_has_an_example(build: Build, name: str) -> None:
    done = build(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"example: python3 build.py {name}" in " ".join(done.out.split())


def test_help_names_every_command_and_version_is_a_line(build: Build) -> None:
    done = build("--help")
    assert done.code == 0
    assert all(f"\n    {name} " in done.out for name in arguments.COMMANDS)
    assert build("--version").out.startswith("cannery ")


@pytest.mark.parametrize("name", sorted(n for n, c in arguments.COMMANDS.items() if options.as_json[0] in c.takes))
def test_commands_that_print_data_have_json(build: Build, name: str) -> None:
    assert "--json" in build(name, "--help").out


ACTIONS = [(name, word) for name, command in arguments.COMMANDS.items() for word in command.actions]


@pytest.mark.parametrize(("name", "action"), ACTIONS)
def test_help_of_every_action_is_its_own(build: Build, name: str, action: str) -> None:
    done = build(name, action, "--help")
    assert (done.code, done.err) == (0, "")
    told = " ".join(done.out.split())
    assert told.startswith(f"usage: python3 build.py {name} {action} ")
    assert f"example: python3 build.py {name} {action}" in told
    assert "--json" in told or (name, action) in {("base", "add"), ("proofs", "add")}  # write a file
    assert f"\n    {action} " in build(name, "--help").out


def test_an_action_has_its_own_options_and_words(build: Build) -> None:
    told = {action: build("patches", action, "--help").out for action in arguments.PATCHES}
    assert {action for action, text in told.items() if "--tree DIR" in text} == {"new"}
    assert {action for action, text in told.items() if "--chip CHIP" in text} == {"summary"}
    assert {action for action, text in told.items() if "PROFILE" in text} == {"list", "summary"}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_offers_the_profiles(build: Build, shell: str) -> None:
    done = build("completion", shell)
    names = sorted(load_catalog(build.root / "images").profiles)
    assert (done.code, " ".join(names) in done.out) == (0, True)
    if shell == "bash":
        found = subprocess.run(
            ["bash", "-c", f"{done.out}\n_cannery_profiles quick"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        assert found.stdout.split() == ["quickstart"]


@pytest.mark.parametrize("words", [("-v",), ("--all",), ("--verbose",)])
def test_verify_takes_the_one_meaning_of_v(words: tuple[str, ...]) -> None:
    found = arguments.parse(["verify", "quickstart", *words])
    assert found.all is (words == ("--all",))
    assert getattr(found, "verbose", False) is (words != ("--all",))


@pytest.mark.parametrize("chip", ["h100", "b200", "tpu"])
def test_a_chip_of_another_maker_is_refused_with_few_names(build: Build, chip: str) -> None:
    done = build("check", "quickstart", "--chip", chip)
    assert done.code == 2
    assert len(done.err) < 200
    assert "910b" in done.err


def test_every_example_is_a_command() -> None:
    for name, command in arguments.COMMANDS.items():
        known = [command.example, *(action.example for action in command.actions.values())]
        for example in known:
            assert arguments.parse(shlex.split(example)).command == name


def test_every_command_has_its_function() -> None:
    import importlib  # noqa: PLC0415

    for name, command in arguments.COMMANDS.items():
        assert callable(importlib.import_module(f"cannery.commands.{command.module}").COMMANDS[name])


def raising(error: BaseException) -> object:
    def call(*_: object) -> int:
        raise error

    return call


def test_an_interrupt_is_130(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_call", raising(KeyboardInterrupt()))
    done = build("list")
    assert done.code == 130
    assert done.err.startswith("interrupted")


def test_a_defect_leaves_a_log_and_no_traceback(build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "_call", raising(ValueError("boom")))
    done = build("list")
    assert done.code == ExitCode.DEFECT
    assert "ValueError: boom" in done.err
    log = Path(done.err.split(" with ")[1].strip())
    assert "Traceback" in log.read_text()


def test_an_error_of_the_system_is_said_even_where_no_log_can_be_written(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/no/such/folder")
    monkeypatch.setattr(cli, "_call", raising(OSError(28, "No space left on device")))
    done = build("list")
    assert done.code == ExitCode.UNABLE
    assert done.err == (
        "error: No space left on device\n"
        "  → free some disk space, then run the same command again; details: CANNERY_DEBUG=1 in the environment\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "says", "hint"),
    [
        (
            PermissionError(13, "x", "/srv/a"),
            4,
            "/srv/a: cannot be used: permission denied",
            "make it writable for you",
        ),
        (
            NotADirectoryError(20, "x", b"/srv/a"),
            4,
            "/srv/a: cannot be used: not a directory",
            "a file is where a folder",
        ),
        (
            FileNotFoundError(2, "x", "/a"),
            4,
            "/a: cannot be used: no such file or directory",
            "a file or folder is missing",
        ),
        (OSError(18, "x", "/a", None, "/b"), 4, "/a → /b: cannot be used: invalid cross-device link", "details: "),
        (OSError(24, "x"), 4, "Too many open files", "ulimit -n 4096"),
        (OSError("odd"), 4, "odd", "details: "),
        (
            ConnectionResetError(104, "Connection reset by peer"),
            7,
            "a connection failed: connection reset",
            "run the same",
        ),
        (TimeoutError(), 7, "a connection failed: timeoutError", "run the same"),
        (requests.ConnectionError("http://u:QZXJ@h"), 7, "a connection failed: connectionError", "run the same"),
    ],
)
def test_no_error_of_the_system_is_left_without_path_reason_and_next_step(
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: OSError,
    code: int,
    says: str,
    hint: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "_call", raising(error))
    done = build("check", "quickstart", "--json")
    assert done.code == code
    assert done.err.startswith(f"error: {says}")
    assert hint in done.err.partition("  → ")[2]
    value = json.loads(done.out)
    assert (value["exit_code"], f"{value['where']}: {value['error']}".removeprefix(": ").startswith(says)) == (
        code,
        True,
    )
    log = Path(done.err.rpartition("details: ")[2].strip())
    assert "Traceback" in log.read_text()
    assert "QZXJ" not in done.out + done.err + log.read_text()


@pytest.mark.parametrize("command", [("lock", "quickstart"), ("outdated", "quickstart"), ("clean",)])
def test_a_cache_that_is_a_file(build: Build, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "cache").write_text("in the way")
    done = build(*command)
    assert done.code in (ExitCode.DONE, ExitCode.UNABLE)
    if done.code:
        assert str(tmp_path / "cache") in done.err
        assert "a file is where a folder is wanted: move it away" in done.err


# What commands print


def test_what_commands_print_cannot_move_the_cursor(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\x1b[2J\x1b]0;x\x07odd\x9b31m\u202e\r"

    def call(*_: object) -> int:
        print(text)
        print(json.dumps({"summary": text}, ensure_ascii=False))
        return 0

    monkeypatch.setattr(cli, "_call", call)
    done = build("list")
    shown = "\\u001b[2J\\u001b]0;x\\u0007odd\\u009b31m\\u202e"
    assert done.out.startswith(f"{shown}\\u000d\n")
    assert not set("\x1b\x07\x9b\u202e\r") & set(done.out + done.err)
    assert json.loads(done.out.splitlines()[1]) == {"summary": text}


def test_errors_are_printed_without_secrets_and_control_signs(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://u:QZ/XJ@p.example:1")
    monkeypatch.setattr(cli, "_call", raising(UnableError("no QZ/XJ \x1b[1A", where="http://a:JV/JV@h", hint="QZ/XJ")))
    done = build("check", "quickstart", "--json")
    assert done.err == "error: http://***@h: no *** \\u001b[1A\n  → ***\n"
    assert json.loads(done.out) == {"error": "no *** \x1b[1A", "where": "http://***@h", "hint": "***", "exit_code": 4}
    monkeypatch.setattr(cli, "_call", raising(ValueError("no QZ/XJ")))
    done = build("list")
    assert "a defect in Cannery: ValueError: no ***" in done.err
    assert "QZ/XJ" not in Path(done.err.split(" with ")[1].strip()).read_text()


def test_rich_draws_on_the_stream_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own signs are what a live view is made of."""
    with clean_streams(lambda text: text.replace("secret", "***")):
        Console(file=sys.stderr, force_terminal=True, no_color=False, color_system="standard").print("x", style="red")
        print("a secret\x1b[2J", file=sys.stderr)
        assert sys.stdout.writelines(["a\x1b", "b"]) is None
        assert sys.stdout.encoding
    text = capsys.readouterr()
    assert text.err == "\x1b[31mx\x1b[0m\na ***\\u001b[2J\n"
    assert text.out == "a\\u001bb"
    assert not isinstance(sys.stderr, CleanStream)


def python(code: str, **more: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload,no-any-return]


def test_help_loads_no_library() -> None:
    heavy = ("docker", "pydantic", "rich", "jinja2", "yaml", "requests", "filelock", "packaging")
    done = python(
        f"import sys; from pathlib import Path; from cannery.cli import main\n"
        f"code = main(['--help'], Path('.')); print('LOADED', [m for m in {heavy!r} if m in sys.modules], code)"
    )
    assert done.stdout.splitlines()[-1] == "LOADED [] 0", done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} build.py show quickstart | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


@pytest.mark.parametrize("words", ["list", "list --json"])
def test_an_output_without_room_is_said_beside_it(words: str) -> None:
    command = f"{sys.executable} build.py {words} >/dev/full"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.UNABLE
    assert done.stderr.startswith("error: No space left on device\n  → free some disk space")
    assert "Traceback" not in done.stderr
    nowhere = subprocess.run(["sh", "-c", f"{command} 2>/dev/full"], cwd=ROOT, check=False)
    assert nowhere.returncode == ExitCode.UNABLE


def test_build_py_gives_the_exit_code_to_the_shell() -> None:
    command = [sys.executable, "build.py", "check", "quikstart"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: no profile 'quikstart'\n  → did you mean quickstart?\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_defect(closed: str) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} build.py list {closed}"], cwd=ROOT, check=False)
    assert done.returncode == ExitCode.DONE


def test_signs_that_the_terminal_cannot_print_are_no_defect() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "build.py", "show", "quickstart"]
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True)
    assert done.returncode == ExitCode.DONE


def test_sigterm_ends_in_order(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_call", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    done = build("list")
    assert (done.code, "interrupted" in done.err) == (ExitCode.INTERRUPTED, True)


def test_check_offers_pins_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    """README's first example."""
    assert cli.main(["check", "quickstart", "--arch", "amd64", "--pin", "torch-npu==2.14.0"], ROOT, program="make") == 3
    needs = " (needs torch 2.14.0 from index pytorch-cpu)\n"
    assert f"; for the first: `PIN='torch==2.14.0 torch-npu==2.14.0'`{needs}" in capsys.readouterr().out
