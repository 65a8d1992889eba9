"""Rules over a recipe and its lock: small pure functions, each yielding findings.

They read the data files and the lock only; no version is written here. What no row of the table has is unknown,
never ok.
Each module holds the rules of one subject; `RULES` lists them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.rules.components import atb, base_env, environment, files, order, patches, releases
from cannery.compat.rules.fit import asked, fits
from cannery.compat.rules.packages import (
    denied,
    excluded,
    exclusive,
    incomplete,
    not_there,
    overrides,
    requirements,
    stale_patterns,
    substitutes,
    torch_free,
    warned,
)
from cannery.compat.rules.target import base_tag, chips, custom_base, driver, emulation, pythons, socs
from cannery.compat.subject import Subject, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cannery.catalog.catalog import Catalog
    from cannery.compat.subject import Finding
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe
    from cannery.vocab import Arch

RULES: tuple[Callable[[Subject], Iterable[Finding]], ...] = (
    base_tag,
    custom_base,
    pythons,
    fits,
    asked,
    driver,
    torch_free,
    requirements,
    not_there,
    overrides,
    substitutes,
    stale_patterns,
    exclusive,
    denied,
    excluded,
    chips,
    socs,
    environment,
    base_env,
    atb,
    order,
    files,
    patches,
    releases,
    emulation,
    incomplete,
    warned,
)


def check_recipe(
    recipe: Recipe, catalog: Catalog, locks: dict[Arch, Lock] | None = None, build_arch: Arch | None = None
) -> tuple[Finding, ...]:
    """Return every finding about `recipe`, from its pins and, when given, its locks; errors first.

    `locks` are those of the profile's arches, the recipe's own among them; `build_arch` is the arch of the machine
    that would build.
    """
    subject = Subject(recipe, catalog, locks or {}, build_arch)
    return in_order(finding for rule in RULES for finding in rule(subject))
