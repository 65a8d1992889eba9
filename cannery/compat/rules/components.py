"""The components of a profile: their order and files; of sources submodules, releases, and patches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.component import System
from cannery.compat.findings import Finding, error, note, warning
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
    """Refuse two components that bring the same path, as links: the later layer would win."""
    owners: dict[str, list[str]] = {}
    for chosen in subject.recipe.chosen:
        part = chosen.component
        for path in part.links if isinstance(part, System) else ():
            owners.setdefault(path, []).append(chosen.name)
    for path, names in owners.items():
        if len(names) > 1:
            yield error(
                "files",
                f"{listed(names)} both bring {path}",
                "each has a layer of its own, and of the same path the last one would be seen",
                f"take {listed(names, 'or')} out of `components` in {subject.recipe.file}",
            )


def submodules(subject: Subject) -> Iterator[Finding]:
    """Report the submodules of a pinned commit: they come from other repositories, on hosts of their own."""
    for chosen in subject.recipe.sources:
        if chosen.commit and chosen.known and chosen.known.submodules:
            each = listed(
                f"{path} ({module.repository} at {module.commit})" for path, module in chosen.known.submodules.items()
            )
            what = f"{chosen.name} brings submodules: {each}"
            yield note("submodule", what, f"their host has to be reachable too; {_origin(chosen)}")


def releases(subject: Subject) -> Iterator[Finding]:
    """Report a release from the package index in the place of a commit, since the two may differ."""
    for chosen in subject.recipe.sources:
        if chosen.release:
            known = ", ".join(f"{commit} ({one.version})" for commit, one in chosen.component.revisions.items())
            yield note(
                "release",
                f"{chosen.name} {chosen.release} is a release from the package index, no commit",
                chosen.reason or (chosen.known.note if chosen.known else ""),
                f"commits that are known: {known}" if known else "",
            )


def patches(subject: Subject) -> Iterator[Finding]:
    """Refuse patches for other commits than those of the set: there they fail, or silently change nothing."""
    by_name = {chosen.name: chosen for chosen in subject.recipe.chosen}
    for chosen in subject.recipe.sources:
        for name, commits in (chosen.known.patches if chosen.known else {}).items():
            patched = by_name.get(name) or _same_package(subject, name)
            if patched and patched.commit:
                if patched.commit not in commits:
                    yield error(
                        "patches",
                        f"{patched.name} is at commit {patched.commit}, the patches of {chosen.name} are for "
                        f"{listed(commits, 'or')}",
                        _origin(chosen),
                        f"pin {patched.name} to that commit, or take a commit of {chosen.name} that is for this one",
                    )
            else:
                yield from _on_a_release(subject, chosen, name, commits)


def _on_a_release(subject: Subject, chosen: Chosen, name: str, commits: tuple[str, ...]) -> Iterator[Finding]:
    package = _package(subject, name)
    if package in subject.versions:
        yield warning(
            "patches",
            f"the patches of {chosen.name} are for {name} at commit {listed(commits, 'or')}, "
            f"the set has release {subject.versions[package]}",
            f"on another tree they fail, or are silently skipped; {_origin(chosen)}",
            f"take {name} at that commit in {subject.recipe.file}",
        )


def _same_package(subject: Subject, name: str) -> Chosen | None:
    """Return the component of the profile that brings the same distribution under another name."""
    package = _package(subject, name)
    return next((chosen for chosen in subject.recipe.sources if chosen.package == package), None)


def _package(subject: Subject, name: str) -> str:
    return package_of(name, subject.catalog.components.get(name))


def _origin(chosen: Chosen) -> str:
    return f"images/components/{chosen.name}.yaml: {chosen.known.source if chosen.known else ''}"
