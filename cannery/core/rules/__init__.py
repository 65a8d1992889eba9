"""Rules over a recipe and its lock: small pure functions, each yielding findings.

They read the data files and the lock only; no version stands here. What no row of the table has is unknown, never ok.
Each module holds the rules of one subject; `RULES` lists them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.core.rules.atb import atb
from cannery.core.rules.chips import chips, socs
from cannery.core.rules.driver import driver
from cannery.core.rules.emulation import emulation
from cannery.core.rules.environment import environment
from cannery.core.rules.few import few
from cannery.core.rules.files import files
from cannery.core.rules.fit import fits
from cannery.core.rules.locks import incomplete, one_arch
from cannery.core.rules.order import order
from cannery.core.rules.overrides import overrides
from cannery.core.rules.packages import denied, excluded, exclusive
from cannery.core.rules.python import pythons
from cannery.core.rules.requires import requirements
from cannery.core.rules.sources import patches, releases, submodules
from cannery.core.rules.subject import Subject
from cannery.core.rules.target import base_tag
from cannery.core.rules.torch_free import torch_free
from cannery.core.rules.warned import warned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cannery.core.catalog import Catalog
    from cannery.core.findings import Finding
    from cannery.core.lock import Lock
    from cannery.core.recipe import Recipe
    from cannery.core.words import Arch

RULES: tuple[Callable[[Subject], Iterable[Finding]], ...] = (
    base_tag,
    pythons,
    fits,
    driver,
    torch_free,
    requirements,
    overrides,
    exclusive,
    denied,
    excluded,
    chips,
    socs,
    environment,
    atb,
    order,
    files,
    patches,
    submodules,
    releases,
    emulation,
    incomplete,
    one_arch,
    warned,
)


def check_recipe(
    recipe: Recipe, catalog: Catalog, locks: dict[Arch, Lock] | None = None, build_arch: Arch | None = None
) -> tuple[Finding, ...]:
    """Return every finding about `recipe`, from its pins and, when given, its locks; errors first, notes kept few.

    `locks` are those of the profile's arches, the recipe's own among them; `build_arch` is the arch of the machine
    that would build.
    """
    subject = Subject(recipe, catalog, locks or {}, build_arch)
    return few(finding for rule in RULES for finding in rule(subject))
