"""Whether the target exists: a CANN image for its chip, OS and Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.versions import without_build
from cannery.compat.findings import Finding, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.catalog.target import Target
    from cannery.compat.subject import Subject

OFFERED = 8


def base_tag(subject: Subject) -> Iterator[Finding]:
    """CANN images exist for some combinations of chip, OS and Python only."""
    base, target = subject.recipe.base, subject.recipe.target
    if base.found is not None:
        return
    rest = target.base_tag.removeprefix(without_build(target.cann))
    same = [tag for line in subject.catalog.bases.values() for tag in line.tags if tag.endswith(rest)]
    elsewhere = f"; {', '.join(near(same, target))} of other CANN lines" if same else ""
    yield error(
        "base-tag",
        f"no CANN image {base.tag_name} exists",
        f"images/bases/{base.line.cann}.yaml: {base.line.source}",
        f"existing: {', '.join(near(tuple(base.line.tags), target))}{elsewhere}",
    )


def near(tags: Sequence[str], target: Target) -> list[str]:
    """Return up to eight tags, those first that have most parts of the target's."""
    parts = {*target.base_tag.split("-")}
    return sorted(tags, key=lambda tag: (-len(parts & {*tag.split("-")}), tag))[:OFFERED]
