"""Helpers for the commands: options from the command line, tables and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cannery.catalog.target import parse_arch, parse_cann, parse_chip, parse_os, parse_python

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.context import Context
    from cannery.pipeline import Hashes
    from cannery.recipe.recipe import Options


PARSERS = {"cann": parse_cann, "chip": parse_chip, "os": parse_os, "python": parse_python, "arch": parse_arch}


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the target, pins, --sources and --force from the command line.

    Raises `UsageError` for values that no profile could use, before a command starts its work.
    """
    from cannery.recipe.recipe import Options
    from cannery.recipe.select import parse_pin

    options = Options(
        cann=arguments.cann,
        chip=arguments.chip,
        os=arguments.os,
        python=arguments.python,
        arch=arguments.arch,
        base=arguments.base,
        pins=tuple(word for text in getattr(arguments, "pin", ()) for word in text.split()),
        force=getattr(arguments, "force", False),
        sources=getattr(arguments, "sources", None),
    )
    for name, parse in PARSERS.items():
        if text := getattr(options, name):
            parse(text)
    for pin in options.pins:
        parse_pin(pin)
    return options


def target_words(arguments: argparse.Namespace) -> str:
    """Return the target's options from the command line, each after a space, for a command in a hint."""
    given = ((name, getattr(arguments, name)) for name in (*PARSERS, "base"))
    return "".join(f" --{name} {value}" for name, value in given if value)


def hashes_of(arguments: argparse.Namespace, env: Mapping[str, str], otherwise: Hashes) -> Hashes:
    """Return whether missing hashes of a lock may come from an index: not with --locked, nor in CI."""
    from cannery.pipeline import Hashes

    locked = env.get("CI", "").lower() not in {"", "0", "false"} if arguments.locked is None else arguments.locked
    return Hashes.LOCKED if locked else otherwise


def row_lines(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each row with a value. The values are aligned."""
    every = tuple(rows)
    width = max(len(name) for name, _ in every)
    yield from (f"{name:<{width}}  {value}" for name, value in every if value)


def print_result(context: Context, value: object, lines: Iterable[str]) -> None:
    """Print the result of a command: `value` with --json, else `lines`."""
    if context.is_json:
        print_json(value)
        return
    for line in lines:
        print(line)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
