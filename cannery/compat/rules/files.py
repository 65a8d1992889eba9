"""Files that components bring into the image beside Python packages: each path is one component's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.component import System, Tarball
from cannery.compat.findings import Finding
from cannery.compat.table import listed
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.compat.subject import Subject


def files(subject: Subject) -> Iterator[Finding]:
    """Refuse two components that bring the same path, as links or as built files: the later layer would win, unseen."""
    owners: dict[str, list[str]] = {}
    for chosen in subject.recipe.chosen:
        part = chosen.component
        for path in part.links if isinstance(part, System) else part.files if isinstance(part, Tarball) else ():
            owners.setdefault(path, []).append(chosen.name)
    for path, names in owners.items():
        if len(names) > 1:
            yield Finding(
                Severity.ERROR,
                "files",
                f"{listed(names)} both bring {path}",
                "each has a layer of its own, and of the same path the last one would be seen",
                f"take {listed(names, 'or')} out of `components` in {subject.recipe.file}",
            )
