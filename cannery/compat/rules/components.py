"""The components of a profile beside each other: their order, and the files that they bring into the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.component import System, Tarball
from cannery.compat.findings import Finding, error
from cannery.compat.table import listed
from cannery.recipe.recipe import package_of
from cannery.vocab import ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen


def order(subject: Subject) -> Iterator[Finding]:
    """Refuse a component that is above one that it comes after; a source needs it in the profile at all."""
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
                    f"{name} is below {chosen.name}, which is installed with it in place",
                    f"move {name} above {chosen.name}",
                )


def _finding(subject: Subject, chosen: Chosen, what: str, fix: str) -> Finding:
    why = f"images/components/{chosen.name}.yaml: after"
    return error("order", what, why, f"{fix} in {subject.recipe.file}")


def _comes_all_the_same(subject: Subject, name: str) -> bool:
    """Whether a lock brings the part as somebody's requirement: wheels come before sources. Without a lock, it may."""
    component = subject.catalog.components.get(name)
    if component is None or component.kind is not ComponentKind.WHEELS:
        return False
    return subject.lock is None or package_of(name, component) in subject.versions


def files(subject: Subject) -> Iterator[Finding]:
    """Refuse two components that bring the same path, as links or as built files: the later layer would win."""
    owners: dict[str, list[str]] = {}
    for chosen in subject.recipe.chosen:
        part = chosen.component
        for path in part.links if isinstance(part, System) else part.files if isinstance(part, Tarball) else ():
            owners.setdefault(path, []).append(chosen.name)
    for path, names in owners.items():
        if len(names) > 1:
            yield error(
                "files",
                f"{listed(names)} both bring {path}",
                "each has a layer of its own, and of the same path the last one would be seen",
                f"take {listed(names, 'or')} out of `components` in {subject.recipe.file}",
            )
