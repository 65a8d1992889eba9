"""The commands of README and of the guides: both READMEs have the same ones, each parses, and some are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import make_command
import pytest

from cannery import cli
from cannery.catalog.io.read import load_catalog
from cannery.cli.arguments import parse
from cannery.errors import ExitCode

ROOT = Path(__file__).resolve().parent.parent.parent
READMES = (ROOT / "README.md", ROOT / "README.zh.md")
PAGES = (*READMES, *sorted((ROOT / "docs").rglob("*.md")))
CLUSTER = (
    "python3 build.py run verl-vllm --arch arm64 --print --format raycluster --nodes 4 --registry registry.example/team"
)
# Run as they are: these need no engine and no network. Each with its exit code.
RUN = {
    "make plan PROFILE=quickstart": ExitCode.DONE,
    "make check PROFILE=quickstart PIN=torch-npu==2.14.0": ExitCode.FINDINGS,
    "make lint-run CMD='docker run --device /dev/dav_manager my-image:1'": ExitCode.FINDINGS,
    CLUSTER: ExitCode.DONE,
}
PLACEHOLDER = "…"


def commands(page: Path) -> list[str]:
    """The lines of a page's code blocks that call make or build.py, without their comments and with single blanks."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"\s+#.*$", "", line) for block in blocks for line in block.splitlines()]
    return [
        re.sub(r"\s+", " ", re.split(r" [|<] ", line)[0]).strip()
        for line in lines
        if line.startswith(("make ", "python build.py ", "python3 build.py "))
    ]


def words_of(line: str) -> list[str]:
    """The words after `build.py` of a command."""
    words = shlex.split(line)
    if words[0].startswith("python"):
        return words[2:]
    pairs = (word.partition("=") for word in words[2:])
    return make_command.command(words[1], {name: value for name, _, value in pairs})


ALL = sorted({(page, line) for page in PAGES for line in commands(page) if PLACEHOLDER not in line})
# Targets that are no command of build.py.
OWN = {"setup", "setup-dev", "unit", "test", "test-all", "lint", "goldens", "docs", "reference", "engine-stop"}


def test_both_readmes_have_the_same_commands() -> None:
    first, second = map(commands, READMES)
    assert first == second
    assert set(RUN) <= set(first)


@pytest.mark.parametrize(("page", "line"), ALL, ids=[f"{page.relative_to(ROOT)}: {line}" for page, line in ALL])
def test_every_command_parses(page: Path, line: str) -> None:
    if line.split()[1] in OWN:
        assert f"\n{line.split()[1]}:" in (ROOT / "Makefile").read_text()
        return
    parse(words_of(line))


FIRST_PAGES = (*READMES, *(ROOT / "docs" / page for page in ("index.md", "guides/npu-host.md", "guides/kubernetes.md")))


@pytest.mark.parametrize("page", FIRST_PAGES, ids=lambda page: page.name)
def test_no_example_takes_a_profile_that_was_replaced(page: Path) -> None:
    replaced = {name for name, profile in load_catalog(ROOT / "images").profiles.items() if profile.replaced}
    assert replaced
    found = [line for line in commands(page) if replaced & set(re.split(r"[ =]", line))]
    assert commands(page)
    assert found == []


@pytest.mark.parametrize(("line", "code"), RUN.items(), ids=list(RUN))
def test_a_command_that_needs_no_engine_runs(line: str, code: ExitCode) -> None:
    words = words_of(line)
    if words[0] == "lint-run":
        words = ["lint-run", shlex.split(line)[2].partition("=")[2]]
    assert cli.main(words, ROOT) == code


def test_readme_fits_on_few_screens() -> None:
    assert len(READMES[0].read_text(encoding="utf-8").splitlines()) <= 150
