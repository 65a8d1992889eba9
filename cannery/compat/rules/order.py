"""The order of a profile: some parts are built or installed with others in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.compat.findings import Finding
from cannery.recipe.recipe import package_of
from cannery.vocab import ComponentKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen


def order(subject: Subject) -> Iterator[Finding]:
    """What a component comes after stands before it in the profile; a source's must be there at all."""
    places = {chosen.name: place for place, chosen in enumerate(subject.recipe.chosen)}
    for chosen in subject.recipe.chosen:
        for name in chosen.component.after:
            if name not in places:
                if chosen.component.kind.is_source and not _comes_all_the_same(subject, name):
                    yield _finding(
                        subject,
                        chosen,
                        f"{chosen.name} is installed with {name} in place, and the profile has no {name}",
                        f"add {name} above {chosen.name}",
                    )
            elif places[name] > places[chosen.name]:
                yield _finding(
                    subject,
                    chosen,
                    f"{name} stands below {chosen.name}, which is installed with it in place",
                    f"move {name} above {chosen.name}",
                )


def _finding(subject: Subject, chosen: Chosen, what: str, fix: str) -> Finding:
    why = f"images/components/{chosen.name}.yaml: after"
    return Finding(Severity.ERROR, "order", what, why, f"{fix} in {subject.recipe.file}")


def _comes_all_the_same(subject: Subject, name: str) -> bool:
    """Whether a lock brings the part as somebody's requirement: wheels stand before sources. Without a lock, it may."""
    component = subject.catalog.components.get(name)
    if component is None or component.kind is not ComponentKind.WHEELS:
        return False
    return subject.lock is None or package_of(name, component) in subject.versions
