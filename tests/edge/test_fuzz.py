"""Random command lines and mutated catalogs: each is done or refused with a code of README, none is a defect (70).

CANNERY_FUZZ is how many times the usual number is tried: `CANNERY_FUZZ=40 pytest tests/edge/test_fuzz.py` tries 2,000
command lines and 10,000 catalogs. CANNERY_FUZZ_SEED tries others.
"""

from __future__ import annotations

import difflib
import os
import random
import shutil
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkouts import FROZEN, copy_checkout

from cannery import cli
from cannery.catalog.io.read import load_catalog
from cannery.cli.arguments import _children, make_parser
from cannery.compat.rules import check_recipe
from cannery.errors import CanneryError, ExitCode
from cannery.lock.request import lock_request
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

TIMES = int(os.environ.get("CANNERY_FUZZ", "1"))
SEED = int(os.environ.get("CANNERY_FUZZ_SEED", "1"))
LINES, CATALOGS = 50 * TIMES, 250 * TIMES
NOWHERE = "http://127.0.0.1:9"
SENSIBLE_WORDS = """
quickstart verl-npu verl-qwen3.5 verl-sglang mindspeed-rl wheels locks out status env 8.5.0 8.3.rc1 910b a3 310p 950
ubuntu22.04 openeuler24.03 3.11 3.10 amd64 arm64 standin ray==2.58.0 torch-npu==2.14.0 release release:verl-src verl
verl-src=. none 0,1 host ascend raycluster pod compose static npu /data:/data A=1 1000:1000 auto 4 x.yaml a.tar bash
localhost:1/team list summary port
"""
# No NUL: no argument of a program can have one.
ODD_WORDS = """
- -- --- = == x= =x é \udcff 💥 0 -1 1e9 99999999999999999999 .. ../.. / ~nosuchuser/x /dev/null /proc/self/mem %s {}
$HOME a==b torch== torch==1==2 torch===x ==1 x@y a,b 0- 1-999999999 0,,1 http://[ h:99999 Foo:1 foo: a@sha256:0
user:pass@host ' " ${x |
"""
SENSIBLE = SENSIBLE_WORDS.split()
TEXTS = ("docker run", "docker run -v", "docker run 'x", "docker run --device=x y:1")
ODD = [*ODD_WORDS.split(), *TEXTS, "", " ", "\n", "\x1b[31m", "a" * 5000]


def parsers() -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """Every command, and every action of one that has actions, by its words."""
    found: dict[tuple[str, ...], argparse.ArgumentParser] = {}
    for name, parser in _children(make_parser()).items():
        found |= {(name, word): sub for word, sub in _children(parser).items()} or {(name,): parser}
    return found


PARSERS = parsers()


def value(chance: random.Random) -> str:
    return chance.choice(SENSIBLE if chance.random() < 0.7 else ODD)


def command_line(chance: random.Random) -> list[str]:
    """A command, its words and some of its options with a word each; one time in three with a mutation."""
    command = chance.choice(sorted(PARSERS))
    words: list[str] = []
    for action in PARSERS[command]._actions:
        names: Any = action.option_strings
        if not names:
            words += [chance.choice(SENSIBLE[:5]) if chance.random() < 0.8 else value(chance)]
        elif names[-1] != "--help" and chance.random() < 0.15:
            name = chance.choice(names)
            choices = [str(one) for one in action.choices or ()]
            word = chance.choice(choices) if choices and chance.random() < 0.8 else value(chance)
            words += [name] if action.nargs == 0 else [f"{name}={word}"] if chance.random() < 0.3 else [name, word]
    line = [*command, *words]
    if chance.random() < 0.3:
        at = chance.randrange(len(line))
        line[at : at + chance.randrange(2)] = [value(chance)]
    return line


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout of its own, on a host without engine, network and standard input."""
    for name in [one for one in os.environ if one.upper().startswith(("PIP_", "DOCKER_", "UV_", "CANNERY_"))]:
        monkeypatch.delenv(name)
    settings = {
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "PIP_INDEX_URL"), NOWHERE),
        "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
        "CANNERY_CACHE": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_HTTP_RETRIES": "0",
        "HOME": str(tmp_path),
    }
    for name, text in settings.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    root = copy_checkout(tmp_path / "checkout")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with Path(os.devnull).open(encoding="utf-8") as empty:
        monkeypatch.setattr("sys.stdin", empty)
        yield root


@pytest.mark.timeout(180 * TIMES)
def test_random_command_lines_are_never_a_defect(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance, failed = random.Random(SEED), []
    for _ in range(LINES):
        line = command_line(chance)
        if "engine" in line and "start" in line:
            continue
        code = cli.main(line, checkout)
        text = capsys.readouterr()
        is_well = code in set(ExitCode) - {ExitCode.DEFECT} and "Traceback" not in text.out + text.err
        if not is_well or not (code == ExitCode.DONE or text.out + text.err):
            failed.append((line, code, text.err[-500:]))
    assert not failed, "\n".join(map(str, failed))


@cache
def files() -> dict[str, list[str]]:
    """The lines of each file of the frozen images/ but locks and patches."""
    paths = [path for path in sorted(FROZEN.rglob("*.yaml")) if "patches" not in path.parts]
    return {str(path.relative_to(FROZEN)): path.read_text(encoding="utf-8").splitlines(keepends=True) for path in paths}


def mutated(chance: random.Random, name: str) -> str:
    """A file with one to three slips: of lines, or of characters."""
    lines = list(files()[name])
    other = files()[chance.choice(sorted(files()))]
    for _ in range(chance.randint(1, 3)):
        lines = lines or [""]
        at = chance.randrange(len(lines))
        line = lines[at]
        column = chance.randrange(len(line) + 1)
        lines[at : at + 1] = chance.choice(
            [
                [],
                [line, line],
                [chance.choice(other)],
                [line, chance.choice(other)],
                ["  " + line],
                [line.lstrip(" ")],
                [line[:column] + chance.choice("\0\t\x85\u2028:-#{}[]\"'&*!|>%@`,?\\ 9x") + line[column:]],
                [line[:column] + line[column + 1 :]],
                [line.partition(":")[0] + ": " + chance.choice(ODD).encode(errors="replace").decode() + "\n"],
                [line.partition(":")[0] + ":\n"],
                [line.replace("[", "", 1), *lines[at + 1 : at + 2]],
            ]
        )
    return "".join(lines)


@pytest.mark.timeout(180 * TIMES)
def test_mutated_catalogs_are_never_a_defect(tmp_path: Path) -> None:
    images = tmp_path / "images"
    shutil.copytree(FROZEN, images)
    chance, failed = random.Random(SEED), []
    for number in range(CATALOGS):
        name = chance.choice(sorted(files()))
        text = mutated(chance, name)
        (images / name).write_text(text, encoding="utf-8")
        try:
            catalog = load_catalog(images)
            for profile in catalog.profiles:
                recipe = select(catalog, profile, Options(), Arch.AMD64)
                check_recipe(recipe, catalog)
                lock_request(recipe)
        except CanneryError as error:
            assert error.code in {ExitCode.USAGE, ExitCode.FINDINGS}, (number, name)  # noqa: PT017 - either is right
        except Exception:  # noqa: BLE001 - what is looked for
            failed.append(f"{number}: {name}\n{traceback.format_exc()[-1500:]}\n{_changed(name, text)}")
        (images / name).write_text("".join(files()[name]), encoding="utf-8")
    assert not failed, "\n".join(failed)


def _changed(name: str, text: str) -> str:
    return "\n".join(difflib.unified_diff("".join(files()[name]).splitlines(), text.splitlines(), n=1, lineterm=""))
