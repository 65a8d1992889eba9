"""The words of build.py that a target and the variables of make's command line become."""

from __future__ import annotations

import os
import sys

import make_command
import pytest


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("list", {}, "list"),
        ("lock", {}, "lock"),
        ("engine-stop", {}, "stop"),
        ("outdated", {"PROFILE": "q", "ARCH": "arm64", "ARGS": "--json"}, "outdated q --arch arm64 --json"),
        (
            "image",
            {"ARGS": "--no-cache --json", "FORCE": "1", "PIN": "a==1 b==2", "OS": "o", "CHIP": "a3", "PROFILE": "q"},
            "image q --chip a3 --os o --pin a==1 --pin b==2 --force --no-cache --json",
        ),
        (
            "image",
            {"PROFILE": "q", "SOURCES": "release", "GIT_MIRROR": "/m", "SRC_a-b": "/a", "VERL_PATH": "/v"},
            "image q --sources release --git-mirror /m --src a-b=/a --src verl=/v",
        ),
        ("image", {"PROFILE": "q", "REUSE": "1", "REGISTRY": "h/t"}, "image q --registry h/t --reuse"),
        ("verify", {"AGAINST": "i"}, "verify --against i"),
        ("verify", {"AGAINST": "i", "PROFILE": "p", "LEVEL": "npu"}, "verify p --against i --level npu"),
        ("run", {"PROFILE": "p", "NPUS": "0", "PRINT": "1", "NODES": "4"},
         "run p --npus 0 --nodes 4 --print"),
        ("run", {"PROFILE": "p", "CMD": "true"}, "run p -- sh -c true"),
        ("shell", {"PROFILE": "p", "NPUS": "0"}, "shell p --npus 0"),
        ("shell", {"PROFILE": "p", "CMD": "true"}, "shell p -- sh -c true"),
        ("push", {"PROFILE": "p", "REGISTRY": "h/t", "FORCE": "1"}, "push p --registry h/t --force"),
        ("bundle", {"PROFILE": "p", "OUTPUT": "o", "SINCE": "s"}, "bundle p --output o --since s"),
        ("load", {"FILE": "f"}, "load f"),
        ("lint-run", {"CMD": "docker run x", "CHIP": "a3"}, "lint-run - --chip a3"),
        ("lint-run", {"FILE": "c.yaml", "ARCH": "arm64"}, "lint-run --file c.yaml --arch arm64"),
        ("lint-run", {"ARGS": "--file=x.yaml"}, "lint-run --file=x.yaml"),
        ("diff", {"ARGS": "main:quickstart quickstart"}, "diff main:quickstart quickstart"),
        ("new", {"PROFILE": "mine", "ARGS": "--like quickstart"}, "new mine --like quickstart"),
        ("index", {"REGISTRY": "h/t"}, "index --registry h/t"),
        ("search", {"ARGS": "vllm>=0.20", "CHIP": "a3", "REGISTRY": "h/t"},
         "search --chip a3 --registry h/t vllm>=0.20"),
        ("sbom", {"PROFILE": "quickstart", "FORMAT": "spdx"}, "sbom quickstart --format spdx"),
        ("report", {"PROFILE": "quickstart", "AGAINST": "old.json"}, "report quickstart --against old.json"),
        ("doctor", {"ARGS": "--root a"}, "doctor --root a"),
        ("doctor", {"PROFILE": "q", "CHIP": "a3"}, "doctor q --chip a3"),
        ("patches", {}, "patches list"),
        ("patches", {"PROFILE": "q"}, "patches list q"),
        ("patches", {"ARGS": "port verl a b", "GIT_MIRROR": "/m"}, "patches port verl a b --git-mirror /m"),
        ("patches", {"ARGS": "summary", "PROFILE": "q"}, "patches summary q"),
        ("clean", {"KIND": "wheels out"}, "clean wheels out"),
    ],
)  # fmt: skip
def test_the_words_of_a_target(target: str, given: dict[str, str], words: str) -> None:
    assert make_command.command(target, given) == words.split()


@pytest.mark.parametrize(
    ("target", "words"),
    [("engine-start", ["tools/engine.py", "start", "--upgrade"]), ("list", ["build.py", "list", "--upgrade"])],
)
def test_the_engine_s_targets_are_of_its_tool(monkeypatch: pytest.MonkeyPatch, target: str, words: list[str]) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(make_command, "current", lambda _files: True)
    monkeypatch.setattr(sys, "argv", ["make_command.py", target])
    monkeypatch.setenv("MAKEFLAGS", "w -- ARGS=--upgrade")
    monkeypatch.setattr(os, "execve", lambda _program, line, _env: called.append(line) or sys.exit(0))
    with pytest.raises(SystemExit):
        make_command.main()
    assert [word.removeprefix(f"{make_command.ROOT}/") for word in called[0][1:]] == words


@pytest.mark.parametrize(("value", "is_on"), [("1", True), ("yes", True), ("0", False), ("no", False), ("", False)])
def test_a_switch_is_off_by_its_word(value: str, is_on: bool) -> None:
    words = make_command.command("image", {"PROFILE": "q", "FORCE": value, "LOCKED": value})
    assert words == ["image", "q", *(["--force", "--locked"] if is_on else [])]


@pytest.mark.parametrize("target", make_command.NEED_PROFILE)
def test_a_profile_that_is_missing_is_named_with_an_example(target: str) -> None:
    example = "mine ARGS='--like quickstart'" if target == "new" else "quickstart"
    with pytest.raises(ValueError, match=f"PROFILE is not set, for example: make {target} PROFILE={example}$"):
        make_command.command(target, {})


def test_a_file_that_is_missing_and_an_unknown_variable() -> None:
    with pytest.raises(ValueError, match="ARGS is not set, for example: make diff ARGS='main:quickstart quickstart'"):
        make_command.command("diff", {})
    with pytest.raises(ValueError, match="for example: make search ARGS='vllm>="):
        make_command.command("search", {})
    with pytest.raises(ValueError, match=r"FILE is not set, for example: make load FILE=quickstart\.tar$"):
        make_command.command("load", {})
    with pytest.raises(ValueError, match=r"unknown variable PROFIL; did you mean PROFILE\?$"):
        make_command.command("image", {"PROFIL": "q"})


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ("", {}),
        ("k", {}),
        (" -- A=b", {"A": "b"}),
        ("kn -j2 -- A=a\\ b\\\\ B=$$x=1 SRC_a-b=/c", {"A": "a b\\", "B": "$x=1", "SRC_a-b": "/c"}),
        (" -- A=x\\ --\\ y", {"A": "x -- y"}),
    ],
)
def test_variables_are_read_from_make_s_flags(flags: str, given: dict[str, str]) -> None:
    assert make_command.variables(flags) == given
