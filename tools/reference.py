"""Write docs/reference from the parser, the models and the locks: `make reference`. A test fails when they differ.

.venv/bin/python tools/reference.py [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cannery.cli.arguments import COMMANDS, make_parser  # noqa: E402 - the checkout's, which was just put on the path
from cannery.cli.options import COMMON  # noqa: E402 - as above
from cannery.lock.text import parse_lock  # noqa: E402 - as above

PAGES = ROOT / "docs/reference"
NOTE = "<!-- Made by tools/reference.py; `make reference` rewrites it. -->\n"


def main() -> int:
    """Write the pages; with --check write nothing, and return 1 when one differs."""
    made = {"commands.md": commands_page(), "locks.md": locks_page()}
    stale = [name for name, text in made.items() if not same(PAGES / name, text)]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/reference/{name} differs; run: make reference", file=sys.stderr)
        return 1 if stale else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (PAGES / name).write_text(made[name], encoding="utf-8")
    return 0


def same(path: Path, text: str) -> bool:
    """Whether a page has this text."""
    return path.exists() and path.read_text(encoding="utf-8") == text


def commands_page() -> str:
    """Return the page of commands: each with its options, from the parser."""
    head = "# Commands\n\nEach is `python build.py COMMAND`, `cannery COMMAND`, or `make COMMAND` with variables.\n"
    head += (
        "\nEach also has `-q` (results and errors only), `-v` (also what build steps print; `--verbose` where `-v` is "
        "a volume), `--color auto|always|never`, `--catalog DIR` (a folder of your profiles and components, laid over "
        "`images/`; default: `CANNERY_CATALOG`) and `--help`.\n"
    )
    parts = [f"{NOTE}\n{head}"]
    parsers = children(make_parser())
    for name, command in COMMANDS.items():
        parts.append(section(2, name, parsers[name], command.summary, command.example))
        for word, action in command.actions.items():
            parts.append(section(3, f"{name} {word}", children(parsers[name])[word], action.summary, action.example))
    return "\n".join(parts)


def children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's commands by name."""
    return next((dict(one.choices) for one in parser._actions if isinstance(one.choices, dict)), {})


def section(depth: int, name: str, parser: argparse.ArgumentParser, summary: str, example: str) -> str:
    """Return one command's section: what it does, an example, a table of what it takes."""
    rows = [row(action) for action in parser._actions if takes(action)]
    head = f"{'#' * depth} {name}\n\n{sentence(summary)}\n\n```\npython build.py {example}\n```\n"
    table = "\n| option | what it does |\n|---|---|\n" + "".join(rows) if rows else ""
    return head + table


def takes(action: argparse.Action) -> bool:
    """Whether an action is an option or word that a user gives; those that every command has are in the head."""
    if set(action.option_strings) & set(COMMON):
        return False
    return not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)


def row(action: argparse.Action) -> str:
    """Return the table row of one option or word."""
    metavar = action.metavar if isinstance(action.metavar, str) else (action.dest or "").upper()
    if action.option_strings:
        value = "" if action.nargs == 0 else f" {metavar}"
        name = ", ".join(f"`{option}{value}`" for option in action.option_strings)
    else:
        name = f"`{metavar}`"
    return f"| {name} | {cell(' '.join((action.help or '').replace('%%', '%').split()))} |\n"


def sentence(text: str) -> str:
    """Return a help text as a sentence."""
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) or not text else ".")


def cell(text: str) -> str:
    """Return text for a table's cell."""
    return re.sub(r"([|<>])", r"\\\1", text)


def locks_page() -> str:
    """Return the page of locks: for each, the packages that its profile names, and how many there are in all."""
    head = "# Locks\n\nThe committed locks. One that is not complete names the packages whose file is not known yet.\n"
    lines = [f"{NOTE}\n{head}"]
    lines.append("| profile | Python | arch | packages | wheels | complete |\n|---|---|---|---|---|---|")
    lines += [lock_row(path) for path in sorted((ROOT / "images/locks").glob("*/*.txt"))]
    return "\n".join(lines) + "\n"


def lock_row(path: Path) -> str:
    """Return the table row of one lock."""
    lock = parse_lock(path.read_text(encoding="utf-8"), path.name)
    python, _, arch = path.stem.partition("-")
    missing = ", ".join(package.name for package in lock.packages if not package.complete)
    size = sum(package.size for package in lock.packages) / 1e6
    state = f"no: {missing}" if missing else "yes"
    cells = (path.parent.name, python.removeprefix("py"), arch, str(len(lock.packages)), f"{size:.0f} MB", state)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
