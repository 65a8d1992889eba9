"""Pythons that a profile can be built for beside its own, and the OS that each of them has a CANN image on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.catalog import BaseLine, Profile


def further_pythons(profile: Profile, line: BaseLine) -> Iterator[tuple[str, str]]:
    """Give (Python, OS) of each further Python of `profile`.

    The OS is the profile's own where `line` has an image with that Python on it, else the first that has; "" where no
    image of the profile's chip has it.
    """
    target = profile.target
    for python in target.pythons:
        known = [_os(tag, f"{line.cann}-{target.chip}-", f"-py{python}") for tag in line.tags]
        found = [os for os in known if os]
        yield python, target.os if target.os in found else next(iter(found), "")


def _os(tag: str, before: str, behind: str) -> str:
    """Return the OS in a tag between `before` and `behind`; "" for another tag."""
    if not (tag.startswith(before) and tag.endswith(behind)):
        return ""
    return tag.removeprefix(before).removesuffix(behind)
