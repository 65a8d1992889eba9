"""`lint-run`: reports mistakes in the user's `docker run` command, compose file, manifest or workflow."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.catalog.documents import parse_documents
from cannery.catalog.io.read import read_yaml_text
from cannery.catalog.target import parse_arch, parse_chip
from cannery.commands import print_json
from cannery.errors import ExitCode, UsageError
from cannery.lint.command import run_lines
from cannery.lint.container import Ground, Remark
from cannery.lint.files import containers_of
from cannery.lint.rules import lint_container
from cannery.vocab import Severity

if TYPE_CHECKING:
    import argparse

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context

# Larger than any real command.
MOST_CHARACTERS = 1 << 20
MOST_BYTES = 1 << 20  # larger than any real script
LONGEST_PATH = 256  # a longer text is not checked as a file name


@dataclass(frozen=True)
class Linted:
    """One container, or the unread parts of a text: its name in the output, and the remarks."""

    name: str
    remarks: tuple[Remark, ...]


def lint_run(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print all remarks. The exit code is 3 if one is an error."""
    ground = _ground(context.catalog(), arguments)
    linted = _of_files(arguments, ground) if arguments.file else _of_text(_text(arguments.text), ground)
    remarks = [one for item in linted for one in item.remarks]
    errors = sum(one.severity is Severity.ERROR for one in remarks)
    unread = sum(one.code == "run.text.unread" for one in remarks)
    if context.is_json:
        rows = [{"name": item.name, "findings": [asdict(one) for one in item.remarks]} for item in linted]
        print_json({"schema": 2, "ok": not errors, "containers": rows})
    else:
        for item in linted:
            _print(item, named=len(linted) > 1 or bool(arguments.file))
        more = f"; not read: {unread}, see above" if unread else ""
        print(f"errors: {errors}{more}" if errors or unread else "no errors")
    return ExitCode.FINDINGS if errors else ExitCode.DONE


def _ground(catalog: Catalog, arguments: argparse.Namespace) -> Ground:
    return Ground(
        chips=catalog.chips,
        shm={name: profile.shm_size for name, profile in catalog.profiles.items()},
        chip=parse_chip(arguments.chip) if arguments.chip else None,
        arch=parse_arch(arguments.arch) if arguments.arch else None,
    )


def _text(text: str | None) -> str:
    if text is None:
        hint = "build.py lint-run 'docker run …', `build.py lint-run --file compose.yaml`, or - for standard input"
        raise UsageError("lint-run: no command is given", hint=hint)
    if text != "-":
        if len(os.fsencode(text)) < LONGEST_PATH and Path(text).is_file():
            raise UsageError("this is a file, not a command", where=text, hint=f"`build.py lint-run --file {text}`")
        return text
    if sys.stdin is None:  # closed with `<&-`
        raise UsageError("standard input is closed", hint="build.py lint-run - < FILE, or the command itself")
    found = sys.stdin.read(MOST_CHARACTERS + 1)
    if len(found) > MOST_CHARACTERS:
        raise UsageError("standard input is longer than any command", hint="give the command alone")
    return found


def _of_text(text: str, ground: Ground) -> list[Linted]:
    read = run_lines(text)
    found = []
    for number, line in enumerate(read.lines, start=1):
        remarks = (line,) if isinstance(line, Remark) else lint_container(line, ground)
        found.append(Linted(f"command {number}", remarks))
    if read.unread:
        why, fix = "this text is not checked", "give the docker run line by itself"
        notes = (
            Remark(Severity.NOTE, "run.text.unread", f"line {one.line}: {one.why}", why, fix, f"line {one.line}")
            for one in read.unread
        )
        found.append(Linted("text", tuple(notes)))
    return found


def _of_files(arguments: argparse.Namespace, ground: Ground) -> list[Linted]:
    if arguments.text is not None:
        raise UsageError("lint-run takes a command or --file, not both", hint="lint the two one after the other")
    paths = [Path(name).expanduser() for name in arguments.file]
    if len(paths) == 1 and (script := _read_script(paths[0])):
        return _of_text(script, ground)
    containers = containers_of(
        [one for path in paths for one in parse_documents(read_yaml_text(path, str(path)), str(path))]
    )
    return [Linted(container.where, lint_container(container, ground)) for container in containers]


def _read_script(path: Path) -> str:
    """Return the text of a shell script, recognised by its name or first line; "" for any other file.

    Raises `UsageError` for a Markdown or reStructuredText page.
    """
    if path.suffix.lower() in {".md", ".markdown", ".rst"}:
        hint = "give its command alone: build.py lint-run 'docker run …'"
        raise UsageError("a page of text is not read", where=str(path), hint=hint)
    if not path.is_file():  # reading a pipe would block
        return ""
    try:
        with path.open("rb") as file:
            head = file.read(MOST_BYTES)
    except OSError:
        return ""
    is_script = path.suffix in {".sh", ".bash"} or head.startswith(b"#!")
    return head.decode("utf-8", "replace") if is_script else ""


def _print(item: Linted, *, named: bool) -> None:
    if named:
        found = {severity: sum(one.severity is severity for one in item.remarks) for severity in Severity}
        counted = ", ".join(f"{severity}s: {number}" for severity, number in found.items() if number)
        print(f"{item.name}: {counted or 'nothing to report'}")
    for one in item.remarks:
        print(one)


COMMANDS = {"lint-run": lint_run}
