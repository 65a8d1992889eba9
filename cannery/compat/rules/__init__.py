"""Rules over a recipe and its lock: small pure functions, each yielding findings.

They read the data files and the lock only; no version is written here. What no row of the table has is unknown,
never ok.
Each module holds the rules of one subject; `RULES` lists them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cannery.compat.rules import components, fit, packages, target
from cannery.compat.subject import Subject, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cannery.catalog.catalog import Catalog
    from cannery.compat.subject import Finding
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe
    from cannery.vocab import Arch

Rule: TypeAlias = "Callable[[Subject], Iterable[Finding]]"
RULES: tuple[Rule, ...] = (*components.RULES, *fit.RULES, *packages.RULES, *target.RULES)


def check_recipe(
    recipe: Recipe, catalog: Catalog, locks: dict[Arch, Lock] | None = None, build_arch: Arch | None = None
) -> tuple[Finding, ...]:
    """Return every finding about `recipe`, from its pins and, when given, its locks; errors first.

    `locks` are those of the profile's arches, the recipe's own among them; `build_arch` is the arch of the machine
    that would build.
    """
    subject = Subject(recipe, catalog, locks or {}, build_arch)
    return in_order(finding for rule in RULES for finding in rule(subject))
