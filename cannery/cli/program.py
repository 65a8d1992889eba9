"""How the user called Cannery, and its commands in messages in the same form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

# The program of a checkout: messages are written with its name.
CHECKOUT = "build.py"
MAKE = "make"
_OF_CHECKOUT = re.compile(r"\b(?:python )?build\.py (?P<words>[a-z][a-z-]*)\b")
# Only what is no English sentence: variables, or the end of the hint, follow the target.
_OF_MAKE = re.compile(r"\bmake (?P<target>[a-z][a-z-]*)(?P<variables>(?: [A-Z_]+=[^\s`;,]+)+|(?=$|[`;]))", re.MULTILINE)
# A command that make takes as it is: alone, or with a profile, and nothing behind it.
_PLAIN = re.compile(
    r"\b(?:python )?build\.py (?P<command>[a-z][a-z-]*)(?: (?P<profile>PROFILE|[a-z0-9][a-z0-9.-]*))?(?=$|[`;,)])",
    re.MULTILINE,
)


def as_called(text: str, program: str, commands: Collection[str], of_profile: Collection[str]) -> str:
    """Return a message whose commands are those of `program`: "build.py", "cannery" or "make".

    `commands` are all commands, `of_profile` those that take a profile. With make, a command that has options of its
    own stays one of build.py, which works beside make.
    """
    if program == MAKE:
        return _PLAIN.sub(lambda found: _make_command(found, of_profile), text) if CHECKOUT in text else text
    if "make " in text:
        text = _OF_MAKE.sub(lambda found: _from_make(found, program, commands), text)
    if program == CHECKOUT or CHECKOUT not in text:
        return text
    return _OF_CHECKOUT.sub(lambda found: _named(found, program, commands), text)


def _named(found: re.Match[str], program: str, commands: Collection[str]) -> str:
    return f"{program} {found['words']}" if found["words"] in commands else found[0]


def _from_make(found: re.Match[str], program: str, commands: Collection[str]) -> str:
    if found["target"] not in commands:
        return found[0]
    words = [program, found["target"]]
    for variable in found["variables"].split():
        name, _, value = variable.partition("=")
        words += [value] if name == "PROFILE" else [f"--{name.lower().replace('_', '-')}", value]
    return " ".join(words)


def _make_command(found: re.Match[str], of_profile: Collection[str]) -> str:
    command, profile = found["command"], found["profile"]
    if not profile:
        return f"make {command}" if command in {*of_profile, "clean"} else found[0]
    return f"make {command} PROFILE={profile}" if command in of_profile else found[0]
