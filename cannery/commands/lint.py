"""`lint-run`: what is wrong with a `docker run` line or a compose file of the user's own."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.catalog.target import parse_arch, parse_chip
from cannery.errors import ExitCode, UsageError
from cannery.lint.case import Ground, remark
from cannery.lint.command import NO_IMAGE, NoImage, run_lines
from cannery.lint.compose import containers_of
from cannery.lint.io.compose_files import read_compose
from cannery.lint.rules import Mended, lint_container, lint_line, mend
from cannery.vocab import ComponentKind, Install, Severity

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.lint.case import Remark
    from cannery.lint.compose_tree import ComposeFile

# Longer than any command line that an engine takes.
MOST_CHARACTERS = 1 << 20
# Names of the files that compose looks for by itself.
STANDARD = frozenset({"compose", "docker-compose"})
NOTHING = Mended("", ())


@dataclass(frozen=True)
class Linted:
    """One container: its name in the output, what is remarked of it, and how far its command could be mended."""

    name: str
    remarks: tuple[Remark, ...]
    mended: Mended


def lint_run(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print every remark, and the corrected command where there can be one; exit 3 when one is an error."""
    ground = _ground(context.catalog(), arguments)
    linted = _of_files(arguments, ground) if arguments.file else _of_text(_text(arguments.text), ground)
    errors = sum(one.finding.severity is Severity.ERROR for item in linted for one in item.remarks)
    if context.is_json:
        print(json.dumps({"schema": 1, "ok": not errors, "containers": _rows(linted)}, indent=2, ensure_ascii=False))
    else:
        for item in linted:
            _print(item, named=len(linted) > 1 or bool(arguments.file))
        print(f"errors: {errors}" if errors else "no errors")
    return ExitCode.FINDINGS if errors else ExitCode.DONE


def _ground(catalog: Catalog, arguments: argparse.Namespace) -> Ground:
    return Ground(
        chips=catalog.chips,
        shm={name: profile.shm_size for name, profile in catalog.profiles.items()},
        trees=frozenset(name for name, c in catalog.sources.items() if c.install is not Install.WHEEL),
        native=frozenset(name for name, c in catalog.sources.items() if c.kind is ComponentKind.NATIVE),
        chip=parse_chip(arguments.chip) if arguments.chip else None,
        arch=parse_arch(arguments.arch) if arguments.arch else None,
    )


def _text(text: str | None) -> str:
    if text is None:
        hint = "build.py lint-run 'docker run …', --file compose.yaml, or - to read standard input"
        raise UsageError("lint-run: no command is given", hint=hint)
    if text != "-":
        return text
    if sys.stdin is None:  # what `<&-` leaves
        raise UsageError("standard input is closed", hint="build.py lint-run - < FILE, or the command itself")
    found = sys.stdin.read(MOST_CHARACTERS + 1)
    if len(found) > MOST_CHARACTERS:
        raise UsageError("standard input is longer than any command", hint="give the command alone")
    return found


def _of_text(text: str, ground: Ground) -> list[Linted]:
    found = []
    for number, line in enumerate(run_lines(text), start=1):
        name = f"command {number}"
        if isinstance(line, NoImage):
            what = f"{line.words}: {NO_IMAGE}"
            lost = remark(Severity.ERROR, "image.none", line.words, what, "docker refuses the line", line.hint)
            found.append(Linted(name, (lost,), NOTHING))
        else:
            found.append(Linted(name, lint_line(line, ground), mend(line, ground)))
    return found


def _of_files(arguments: argparse.Namespace, ground: Ground) -> list[Linted]:
    if arguments.text is not None:
        hint = "lint the two one after the other"
        raise UsageError("lint-run takes a command or --file, not both", hint=hint)
    paths = [Path(name).expanduser() for name in arguments.file]
    for path in paths:
        _check(path)
    files = [read_compose(path, str(path)) for path in paths]
    containers = containers_of(files)
    linted = [Linted(container.where, lint_container(container, ground), NOTHING) for container in containers]
    return [*(Linted(file.name, notes, NOTHING) for file in files if (notes := _unread(file, paths))), *linted]


def _check(path: Path) -> None:
    if path.is_file():
        return
    what = "a folder" if path.is_dir() else "a device, a pipe or a socket" if path.exists() else ""
    hint = "--file names a compose file; the text of a command comes by standard input: lint-run -"
    raise UsageError(f"is {what}, no file" if what else "no such file", where=str(path), hint=hint)


def _unread(file: ComposeFile, paths: Sequence[Path]) -> tuple[Remark, ...]:
    """Return notes on the files that belong to a compose file and are not judged with it."""
    why = "what stands in it is not judged"
    named = [
        remark(Severity.WARNING, "file.unread", one.partition(": ")[0], one, why, "have it here, and lint it too")
        for one in file.unread
    ]
    path = Path(file.name).expanduser()
    beside = path.with_name(f"{path.stem}.override{path.suffix}")
    if path.stem in STANDARD and len(paths) == 1 and beside.is_file():
        what = f"{beside.name} stands beside it, which `docker compose up` reads over it"
        fix = f"--file {path} --file {beside}"
        named.append(remark(Severity.NOTE, "file.unread", beside.name, what, why, fix))
    return tuple(named)


def _rows(linted: Sequence[Linted]) -> list[dict[str, object]]:
    return [
        {
            "name": item.name,
            "findings": _findings(item.remarks),
            "corrected": item.mended.text or None,
            "left": _findings(item.mended.left) if item.mended.text else [],
        }
        for item in linted
    ]


def _findings(remarks: Sequence[Remark]) -> list[dict[str, object]]:
    return [{**asdict(one.finding), "word": one.word} for one in remarks]


def _print(item: Linted, *, named: bool) -> None:
    if named:
        print(f"{item.name}:")
    for one in item.remarks:
        print(one)
    if item.mended.text:
        but = f", but for what only you can mend ({', '.join(item.mended.open)})" if item.mended.open else ""
        print(f"corrected{but}:\n{item.mended.text}")
        told = {one.finding.code for one in item.remarks}
        for one in item.mended.left:
            if one.finding.code not in told:
                print(f"of the corrected command: {one}")


COMMANDS = {"lint-run": lint_run}
