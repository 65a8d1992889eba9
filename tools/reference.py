"""Write docs/reference from the parser, the models and the locks (`make reference`). A test fails if they differ.

.venv/bin/python tools/reference.py [--check]
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.component import Closed

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cannery.catalog import addresses, catalog, component  # noqa: E402 - the checkout's, which was just put on the path
from cannery.cli.arguments import COMMANDS, make_parser  # noqa: E402 - as above
from cannery.cli.options import COMMON  # noqa: E402 - as above
from cannery.lock.lock import parse_lock  # noqa: E402 - as above

PAGES = ROOT / "docs/reference"
NOTE = "<!-- Made by tools/reference.py; `make reference` rewrites it. -->\n"
# The headings on the page of fields that have a table of a model; all kinds of components share one.
KINDS = (component.Wheels, component.Source, component.Native, component.System)
MODELS: dict[str, tuple[type[Closed], ...]] = {
    "Profile": (catalog.Profile,),
    "target": (catalog.TargetDefaults,),
    "components": (catalog.Pin,),
    "constraints, overrides and excludes": (catalog.Reasoned,),
    "substitutes": (catalog.Substitute,),
    "warnings": (catalog.Warned,),
    "exclude_newer_packages": (catalog.Later,),
    "user": (catalog.ImageUser,),
    "Component": KINDS,
    "imports": (component.Import,),
    "metadata": (component.StandInMetadata,),
    "cxx_abi": (component.CxxAbi,),
    "revisions and releases": (component.Revision,),
    "patch_sets": (component.PatchSets,),
    "edits": (component.Edit,),
    "standin": (component.OnStandIn,),
    "submodules": (component.Submodule,),
    "Indexes": (addresses.Index,),
    "Hosts": (addresses.Host,),
}
# The text of a cell that is still to be written: a test refuses it.
OPEN = "?"


def main() -> int:
    """Write the pages; with --check write nothing, and return 1 if one differs."""
    made = {"commands.md": commands_page(), "fields.md": fields_page(), "locks.md": locks_page()}
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
    """Return the page of commands with their options, from the parser."""
    head = "# Commands\n\nEach is `python3 build.py COMMAND`, `cannery COMMAND`, or `make COMMAND` with variables.\n"
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
    """Return one command's section: what it does, an example, a table of its options."""
    rows = [row(action) for action in parser._actions if takes(action)]
    head = f"{'#' * depth} {name}\n\n{sentence(summary)}\n\n```\npython3 build.py {example}\n```\n"
    table = "\n| option | what it does |\n|---|---|\n" + "".join(rows) if rows else ""
    return head + table


def takes(action: argparse.Action) -> bool:
    """Whether an action is in a command's table; options that every command has are at the top of the page."""
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


def fields_page() -> str:
    """Return the page of fields with the tables of the models: their fields, in order, and defaults.

    What a field is, an example, and what happens when it is wrong are kept from the page. A new field has what is
    written above it in its model, and `?` for the rest.
    """
    text = (PAGES / "fields.md").read_text(encoding="utf-8")
    for heading, models in MODELS.items():
        start = rf"^##+ {re.escape(heading)}\n(?:(?!##).*\n)*?\| field .*\n\|[-|]+\n"
        match = re.search(rf"({start})((?:\|.*\n)+)", text, re.MULTILINE)
        if match is None:
            raise SystemExit(f"docs/reference/fields.md has no table below {heading!r}")
        text = text[: match.start(2)] + "".join(field_rows(models, match[2])) + text[match.end(2) :]
    return text


def field_rows(models: tuple[type[Closed], ...], table: str) -> Iterator[str]:
    """Yield the rows of a table of fields; `table` are those of the page."""
    cells = {cells[0].strip("`"): cells for cells in (line.strip("| ").split(" | ") for line in table.splitlines())}
    owners = {name: model for model in reversed(models) for name in model.model_fields}
    # The fields of components keep the order of the page.
    known = [name for name in cells if name in owners] if len(models) > 1 else []
    for name in (*known, *(name for name in owners if name not in known)):
        _, what, default, example, wrong = cells.get(name, (name, above(owners[name], name), "", OPEN, OPEN))
        # For a field that only some kinds of components require, the page's text is kept.
        is_needed = owners[name].model_fields[name].is_required() and name not in component.Part.model_fields
        kept = default if len(models) > 1 and is_needed else default_of(owners[name], name)
        yield f"| `{name}` | {what} | {kept} | {example} | {wrong} |\n"


def default_of(model: type[Closed], name: str) -> str:
    """Return a field's default as YAML has it, `required` or `none`."""
    if model.model_fields[name].is_required():
        return "required"
    value: Any = model.model_construct().model_dump(mode="json", include={name}, warnings=False)[name]
    if value is None:
        return "none"
    return f"`{yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}`" if value != "" else '`""`'


def above(model: type[Closed], name: str) -> str:
    """Return the comment above a field in its model's source, or `?`."""
    found = re.search(rf"((?:^    #.*\n)+)    {name}:", inspect.getsource(model), re.MULTILINE)
    return cell(" ".join(line.strip(" #") for line in found[1].splitlines())) if found else OPEN


def locks_page() -> str:
    """Return the page of locks."""
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
