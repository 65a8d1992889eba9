"""`completion`: what completes commands and options in a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.errors import ExitCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from cannery.context import Context


PROFILES = "_cannery_profiles"


def completion(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print the script that completes `cannery` in bash or zsh, made from the parser and the catalog's profiles."""
    import shtab

    names = " ".join(sorted(context.catalog().profiles))
    for action in _profiles(arguments.parser):
        action.complete = {"bash": PROFILES, "zsh": f"({names})"}  # type: ignore[attr-defined] # shtab's own
    preamble = f'{PROFILES}() {{ compgen -W "{names}" -- "$1"; }}\n' if arguments.shell == "bash" else ""
    print(shtab.complete(arguments.parser, shell=arguments.shell, preamble=preamble))
    return ExitCode.DONE


def _profiles(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Give what takes a profile, in every command and action."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if action.dest == "profile":
            yield action
        for sub in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from _profiles(sub)


COMMANDS = {"completion": completion}
