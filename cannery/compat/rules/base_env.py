"""What components and the profile set against what the base sets.

CANN, Python and the driver are found by the variables of the base's ENV. A list (PATH) may be extended, never replaced;
a place (ASCEND_HOME_PATH) may not be changed; another value may, and a note lists it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cannery.compat.findings import error, note
from cannery.recipe.base_env import expand_env, python_home
from cannery.recipe.environment import PYTHONPATH, REFERENCE, VENV

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping

    from cannery.compat.findings import Finding
    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Recipe

LISTS = frozenset({"PATH", "LD_LIBRARY_PATH", PYTHONPATH})
WHY = "the base's ENV has it: programs, libraries and modules of CANN and Python are found by it"


def base_env(subject: Subject) -> Iterator[Finding]:
    """Refuse a value that hides the base's own lists and places; note another value of the base that is replaced."""
    recipe = subject.recipe
    base = _base_values(recipe)
    homes = _homes(recipe)
    setters = [(f"component {one.name}", one.component.env) for one in recipe.chosen]
    for who, values in (*setters, (recipe.file, recipe.profile.env)):
        for name, value in values.items():
            yield from _held(who, name, REFERENCE.sub(partial(_kept, name, base), value), base.get(name), homes)


def _kept(name: str, base: Mapping[str, str], found: re.Match[str]) -> str:
    """Return what a reference stands for; that to the variable itself stays, as does what only components set."""
    return found[0] if found[1] == name else base.get(found[1], found[0])


def _held(who: str, name: str, value: str, own: str | None, homes: tuple[str, ...]) -> Iterator[Finding]:
    reference = f"${{{name}}}"
    if name in LISTS or (own is not None and _is_list(own)):
        if reference not in value.split(":"):
            what = f"{who} sets {name}={value}, without the value of the base"
            yield error("base-env", what, WHY, f"keep it as one entry of the list: {name}=/your/folder:{reference}")
    elif own is None or value in {own, reference}:
        return
    elif own.startswith(homes):
        what = f"{who} sets {name}={value}; the base has it as {own}"
        yield error("base-env", what, WHY, f"take {name} out; CANN and BASE choose another CANN")
    else:
        yield note("base-env", f"{who} sets {name}={value}; the base has it as {own}", "the image has the new value")


def _is_list(value: str) -> bool:
    entries = value.split(":")
    return len(entries) > 1 and all(entry.startswith("/") for entry in entries if entry)


def _base_values(recipe: Recipe) -> Mapping[str, str]:
    """Return the base's ENV, as far as it is known, and what Cannery itself sets to places."""
    base = recipe.base
    known = base.found is not None and recipe.target.os in base.line.env
    return {**(expand_env(base.line, recipe.target, base.tag) if known else {}), "VIRTUAL_ENV": VENV}


def _homes(recipe: Recipe) -> tuple[str, ...]:
    found = recipe.base.found
    return ("/usr/local/Ascend", recipe.base.line.toolkit_home, VENV, *((python_home(found),) if found else ()))
