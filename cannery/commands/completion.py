"""`completion`: what completes commands and options in a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.errors import ExitCode

if TYPE_CHECKING:
    import argparse

    from cannery.context import Context


def completion(arguments: argparse.Namespace, _context: Context) -> ExitCode:
    """Print the script that completes `cannery` in bash or zsh, made from the parser."""
    import shtab

    print(shtab.complete(arguments.parser, shell=arguments.shell))
    return ExitCode.DONE


COMMANDS = {"completion": completion}
