"""The environment that a CANN image carries in its configuration, worked out from its ENV lines.

Docker replaces `$NAME` and `${NAME}` in an ENV line by its value above, and an unset name by nothing. So the
images' `LD_LIBRARY_PATH=…/driver/:$LD_LIBRARY_PATH` ends in a colon: an empty segment, which ld.so and Python read as
the current directory. Empty segments are kept, since the value here must be the one that `docker inspect` shows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, UsageError
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import BaseLine, BaseTag
    from cannery.catalog.target import Target

# What BuildKit takes for PATH where the image below sets none; Ubuntu's and openEuler's images set the same.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REFERENCE = re.compile(r"\$(?:\{(?P<braced>[^}]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def python_home(tag: BaseTag) -> str:
    """Return the folder of the interpreter in CANN images: /usr/local/python<full version>."""
    return f"/usr/local/python{tag.python}"


def expand_env(line: BaseLine, target: Target, tag: BaseTag) -> dict[str, str]:
    """Return the final environment of the CANN image of `target`, in the order in which names first appear.

    `line` and `tag` are the target's. Raises `FindingsError` when the line has no image on the target's OS,
    `UsageError` for a reference in an ENV line that is not understood.
    """
    lines = line.env.get(target.os)
    if lines is None:
        raise FindingsError(
            f"CANN {line.cann} has no image on {target.os}",
            where=f"images/bases/{line.cann}.yaml",
            hint=did_you_mean(target.os, line.env),
        )
    fields = {"{python_home}": python_home(tag), "{atb_abi}": str(tag.atb_abi)}
    env = {"PATH": DEFAULT_PATH}
    for text in lines:
        name, value = _parse(text)
        for field, replacement in fields.items():
            # Not `${…}` of Docker: a field has no dollar sign before it.
            value = re.sub(rf"(?<!\$){re.escape(field)}", replacement, value)
        env[name] = _expand(value, env, line.cann)
    return env


def _parse(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name, value


def _expand(value: str, env: Mapping[str, str], cann: str) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match["plain"] or match["braced"]
        if not NAME.fullmatch(name):
            raise UsageError(f"{match[0]} is not understood", where=f"images/bases/{cann}.yaml", hint="write ${NAME}")
        return env.get(name, "")

    return REFERENCE.sub(replace, value)
