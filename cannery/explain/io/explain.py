"""What a failed resolution comes down to: package, who asks, what could be moved, and sets near it that were tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError
from cannery.explain.conflict import find_conflict, is_written, movable, told
from cannery.explain.derivation import Fact, FactKind, parse_reasons
from cannery.explain.io.missing import absence
from cannery.explain.io.nearest import try_sets
from cannery.explain.nearest import candidates, recipe_of
from cannery.explain.profile_items import profile_items
from cannery.lock.io.bound import NoFileError
from cannery.lock.lock import PROFILE_VIA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.catalog import Catalog
    from cannery.errors import CanneryError
    from cannery.explain.conflict import Conflict
    from cannery.explain.io.nearest import Attempt
    from cannery.lock.io.uv import Job, UnsolvedError
    from cannery.recipe.recipe import Recipe


@dataclass(frozen=True)
class Known:
    """What is known beside the request: the catalog, and the recipe that the request was made from."""

    catalog: Catalog | None
    recipe: Recipe | None

    def recipe_for(self, job: Job) -> Recipe | None:
        """Return the recipe; one that is not given is made from the request, where that can be told."""
        if self.recipe is not None or self.catalog is None:
            return self.recipe
        return recipe_of(job.request, self.catalog)


def explained(error: UnsolvedError | NoFileError, job: Job, known: Known, attempt: Attempt) -> CanneryError:
    """Return the error that a user sees in place of `error`; the same one where its reasons are not understood.

    Indexes are asked (within the limit of a probe), and sets near the request are tried by `attempt`. It is a
    `NetworkError` when an index fails only at the page of the package.
    """
    recipe = known.recipe_for(job)
    items = profile_items(job.request, recipe)
    facts = _no_file(error) if isinstance(error, NoFileError) else parse_reasons(error.stderr)
    conflict = find_conflict(facts, items)
    if conflict is None:
        return error
    try:
        head = absence(conflict, job, known.catalog)
    except NetworkError as trouble:
        return trouble
    lines = [head.text, *_asked(conflict)]
    if not head.is_elsewhere:
        lines += _moves(conflict, recipe)
        lines += _offers(recipe, known.catalog, conflict, attempt) if known.catalog and recipe else ()
    return FindingsError("\n  ".join(lines), where=job.where, hint=head.hint)


def _no_file(error: NoFileError) -> tuple[Fact, ...]:
    versions = (f"=={error.pin}",) if error.pin else ()
    askers = error.askers or (PROFILE_VIA,)
    asks = (Fact(FactKind.ASKS, error.name, versions, asker.partition("[")[0]) for asker in askers)
    return (Fact(FactKind.LACKS, error.name, versions), *asks)


def _asked(conflict: Conflict) -> tuple[str, ...]:
    """Who asks; nothing where only the profile does, since what it asks for stands in the line above."""
    if conflict.facts and not any(side.chain for side in conflict.sides):
        return ()
    return told(conflict)


def _moves(conflict: Conflict, recipe: Recipe | None) -> tuple[str, ...]:
    moves = movable(conflict)
    if recipe and is_written(conflict):
        moves += f" ({recipe.file})"
    return (moves,) if moves else ()


def _offers(recipe: Recipe, catalog: Catalog, conflict: Conflict, attempt: Attempt) -> Iterator[str]:
    found = candidates(recipe, catalog, conflict)
    if not found:
        return
    tried = try_sets(found, catalog, attempt)
    if tried.offers:
        yield "near it works (each was resolved):"
        yield from (f"  {words}" for words in tried.offers)
    elif tried.count:
        yield f"of {tried.count} sets near it that were tried, none works"
    if tried.trouble:
        yield f"sets that could not be tried: {len(tried.trouble)}; {tried.trouble[0]}"
    elif not tried.offers and not tried.count:
        yield "no set near it could be tried in time"
