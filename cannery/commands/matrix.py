"""Several images in one run, for several profiles, chips and architectures, with one table at the end."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from cannery.commands import PARSERS, options_of, print_json
from cannery.errors import CanneryError, ExitCode, UsageError
from cannery.recipe.select import select

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from cannery.context import Context


@dataclass(frozen=True)
class Outcome:
    """The result of one image: an exit code, its text, and its JSON value."""

    code: ExitCode
    text: str
    value: dict[str, Any] = field(default_factory=dict)


def cells_of(arguments: argparse.Namespace) -> list[argparse.Namespace]:
    """Return the arguments for each image. --chip and --arch may have several values, separated by commas.

    Raises `UsageError` for an option that only one image can have, and for a list with an empty or unknown word.
    """
    chips, arches = _given(arguments, "chip"), _given(arguments, "arch")
    cells = []
    for profile, chip, arch in product(dict.fromkeys(arguments.profile), chips, arches):
        cell = copy.copy(arguments)
        cell.profile, cell.chip, cell.arch = profile, chip, arch
        cells.append(cell)
    if len(cells) > 1:
        if arguments.output and arguments.output.startswith("oci:"):
            raise UsageError(
                "--output oci:DIR is for one image", hint="push them (--push), or make one after the other"
            )
        for cell in cells:
            cell.begun = {}  # a stamp is for a whole command line
    return cells


def _given(arguments: argparse.Namespace, name: str) -> list[str | None]:
    """Return the values of an option in canonical form, because two names of one chip mean one image."""
    text = getattr(arguments, name)
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(words):
        what = f"--{name}: {text!r} has an empty word beside a comma"
        raise UsageError(what, hint="write a word, or remove the comma")
    return list(dict.fromkeys(str(PARSERS[name](word)) for word in words)) or [None]


def make_all(
    cells: Sequence[argparse.Namespace],
    arguments: argparse.Namespace,
    context: Context,
    make: Callable[[argparse.Namespace, Context], Outcome],
) -> ExitCode:
    """Make each image and print a table. Return the first exit code that is not success.

    The first failure ends the run, except with --keep-going. Raises `UsageError` for an unknown profile or chip.
    """
    for cell in cells:
        # An unknown profile or chip ends the run before the first image is made.
        select(context.catalog(), cell.profile, options_of(cell), context.arch)
    rows: list[tuple[str, Outcome | None, float]] = []
    code = ExitCode.DONE
    for number, cell in enumerate(cells, 1):
        name = " ".join(word for word in (cell.profile, cell.chip, cell.arch) if word)
        if code is not ExitCode.DONE and not arguments.keep_going:
            rows.append((name, None, 0.0))
            continue
        context.say(f"image {number} of {len(cells)}: {name}")
        begun = time.monotonic()
        outcome = _made(cell, context, make)
        rows.append((name, outcome, time.monotonic() - begun))
        code = code or outcome.code
    _print(context, rows)
    return code


def _made(
    cell: argparse.Namespace, context: Context, make: Callable[[argparse.Namespace, Context], Outcome]
) -> Outcome:
    try:
        outcome = make(cell, context)
    except CanneryError as error:
        context.say(f"error: {error}")
        return Outcome(error.code, error.what, {"error": error.what, "where": error.where, "hint": error.hint})
    if not context.is_json:
        print(outcome.text, flush=True)
    return outcome


def _print(context: Context, rows: Sequence[tuple[str, Outcome | None, float]]) -> None:
    if context.is_json:
        value = [
            {"image": name, "code": outcome.code if outcome else None, "seconds": round(seconds, 1)}
            | (outcome.value if outcome else {})
            for name, outcome, seconds in rows
        ]
        print_json(value)
        return
    width = max(len(name) for name, _, _ in rows)
    for name, outcome, seconds in rows:
        print(f"{name:<{width}}  {_words_of(outcome, seconds)}")


def _words_of(outcome: Outcome | None, seconds: float) -> str:
    if outcome is None:
        return "not begun"
    if outcome.code is ExitCode.DONE:
        return f"done         {seconds:7.1f} s"
    what = outcome.value.get("error", "")
    return f"exit code {outcome.code:<2} {seconds:7.1f} s  {what.splitlines()[0] if what else ''}".rstrip()
