"""Rules over a recipe and its lock: small pure functions that yield findings.

They use only the catalog and the lock; the code has no versions. A release without a row in the table is unknown,
never ok. Each module has the rules of one subject, and `RULES` lists them all.
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
    """Return all findings about `recipe`, errors first.

    `locks` are the locks of all arches of the profile; without them, only the pins are checked. `build_arch` is the
    arch of the build machine.
    """
    subject = Subject(recipe, catalog, locks or {}, build_arch)
    return in_order(finding for rule in RULES for finding in rule(subject))
