"""Rules about packages: which must not be in a set, what sources require, and what a profile overrides.

The resolver checks the requirements of wheels. Every override is reported, with the packages that require another
version.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.compatibility import CANN
from cannery.catalog.component import System
from cannery.catalog.target import package_name, parsed_requirement
from cannery.compat.subject import Finding, error, here, holds, judging, listed, note, phrase, warning
from cannery.lock.lock import PROFILE_VIA, chain, public_mirrors, published_at
from cannery.lock.request import set_aside
from cannery.recipe.select import TORCH, TORCH_NPU

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.catalog.component import Known
    from cannery.catalog.target import PackageRequirement
    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import ChosenSource


NAMED = 5
OFFERED = 3
# The start of a pattern that names one release, such as `^sglang 0\.5\.10 `.
RELEASE = re.compile(r"\^(?P<name>(?:[\w-]|\\?[.-])+) (?P<version>(?:\w|\\?[.+])+) ")


def exclusive(subject: Subject) -> Iterator[Finding]:
    """Refuse two distributions that install the same files."""
    asked = {chosen.package for chosen in subject.recipe.chosen}
    for names in _clashes(subject):
        extra = next((name for name in names if name not in asked), "")
        way = (
            f"`excludes: [{{requirement: {extra}, reason: …}}]`" if extra else f"{listed(names, 'or')} of `components`"
        )
        yield error(
            "exclusive",
            f"{listed(f'{name} {subject.versions[name]}' for name in names)} are both in the set; who asks: "
            + "; ".join(_chain(subject, name) for name in names),
            "they install files of the same names: the later overwrites the earlier, and removing one breaks the other",
            f"take one out: {way} in {subject.recipe.file}",
        )


def denied(subject: Subject) -> Iterator[Finding]:
    """Refuse packages that must not be in an NPU image, except those that `exclusive` reports."""
    reported = {name for names in _clashes(subject) for name in names}
    items = subject.table.denied(chosen.package for chosen in subject.recipe.sources)
    every = re.compile("|".join(fnmatch.translate(item.pattern) for item in items))
    names = sorted(filter(every.match, subject.versions))
    for item in items:
        hits = [name for name in fnmatch.filter(names, item.pattern) if name not in reported]
        if not hits:
            continue
        reported |= {*hits}
        more = f"; and {len(hits) - NAMED} more" if len(hits) > NAMED else ""
        each = "; ".join(f"{name} {subject.versions[name]}: {_chain(subject, name)}" for name in hits[:NAMED])
        yield error(
            "denied",
            f"not for an NPU image ({item.pattern}): {each}{more}",
            item.reason,
            f"bind the first package of a chain to an index with another build, or exclude the last one in "
            f"{subject.recipe.file}",
        )


def excluded(subject: Subject) -> Iterator[Finding]:
    """Refuse to exclude a package that the recipe requires by name: no lock could meet the request."""
    recipe = subject.recipe
    components = {c.package: c.name for c in recipe.chosen if c.component.kind.is_package}
    of_cann = {package_name(text) for text in recipe.base.line.python_packages}
    for item in recipe.profile.excludes:
        name = package_name(item.requirement)
        if name in components:
            who, fix = f"has it as component {components[name]}", f"take {name} out of `components` or of `excludes`"
        elif name in of_cann:
            who, fix = f"is for CANN {recipe.target.cann}, which imports it", f"take {name} out of `excludes`"
        else:
            continue
        yield error("excluded", f"{recipe.file} excludes {name}, and {who}", item.reason, fix)


def _clashes(subject: Subject) -> Iterator[list[str]]:
    for group in subject.table.exclusive:
        names = [name for name in map(canonicalize_name, group) if name in subject.versions]
        if len(names) > 1:
            yield [str(name) for name in names]


def _chain(subject: Subject, name: str) -> str:
    return " → ".join(("profile", *chain(subject.packages, name)))


def incomplete(subject: Subject) -> Iterator[Finding]:
    """Report packages without a hash, one finding for each index. They can be checked and planned, but not built."""
    for index in sorted({package.index for package in subject.packages if not package.complete}):
        missing = [p for p in subject.packages if p.index == index and not p.complete]
        names = [f"{p.name} {p.version}" for p in missing]
        target = subject.recipe.target
        what = f"the lock has no hash of {listed(names)} for Python {target.python} on {target.arch}"
        known = subject.catalog.indexes.get(index)
        if known is not None and not known.urls:
            yield warning(
                "lock-incomplete",
                f"{what}: no wheel of your own was found",
                f"index {index}: {known.note}",
                "put the wheel for this Python and arch into a folder, and run `build.py lock` for this profile "
                "with --wheelhouse",
            )
        else:
            pages = "; ".join(f"{p.name} is published {published_at(p, subject.catalog.indexes)}" for p in missing)
            fix = "a build takes it from there if it can reach that index; `build.py lock` writes it into the lock"
            mirrors = public_mirrors({index}, subject.catalog.indexes)
            yield warning("lock-incomplete", what, pages, "; ".join(filter(None, (fix, mirrors))))


def torch_free(subject: Subject) -> Iterator[Finding]:
    """Refuse a set with torch if no pin, constraint, override or source fixes its version."""
    bounds = (requirement for requirement in _bounds(subject) if requirement.package == TORCH)
    if any(part.operator in {"==", "==="} for requirement in bounds for part in requirement.specifier):
        return
    who = sorted(_torch_users(subject))
    if not who:
        return
    cann = subject.recipe.target.cann
    rows = [row for row in subject.rows.get(TORCH_NPU, ()) if {CANN, TORCH} <= row.fits.keys()]
    pairs = [
        f"{TORCH} {row.fits[TORCH]} with {TORCH_NPU} {row.version}" for row in rows if holds(CANN, row.fits[CANN], cann)
    ]
    known = f"; for CANN {cann} the table has {', or '.join(pairs[:OFFERED])}" if pairs else ""
    yield error(
        "torch-free",
        f"nothing holds {TORCH}, and {listed(who)} {'needs' if len(who) == 1 else 'need'} it: "
        f"a resolver takes the newest one",
        f"{TORCH_NPU} trails {TORCH} by months (flagos-ai/sglang-plugin-FL issue 14)",
        f"pin {TORCH} in {subject.recipe.file}{known}",
    )


def _torch_users(subject: Subject) -> set[str]:
    """Return the components that need torch: torch, torch_npu, those with rows about it, sources that require it."""
    made_for = {name for name, rows in subject.rows.items() if any(TORCH in row.fits for row in rows)}
    made_for |= {TORCH, TORCH_NPU}
    found: set[str] = {c.name for c in subject.recipe.chosen if c.package in made_for}
    found |= {who.name for who, requirement in subject.asks if requirement.package == TORCH}
    return found or ({TORCH} if here(subject, TORCH) else set())


def _bounds(subject: Subject) -> Iterator[PackageRequirement]:
    """Yield all requirements that may fix the version of torch: pins, bounds of table and profile, and sources."""
    recipe, profile = subject.recipe, subject.recipe.profile
    pins = [c.requirement for c in recipe.wheels if c.version]
    bent = [item.requirement for item in (*profile.constraints, *profile.overrides)]
    yield from map(parsed_requirement, (*pins, *recipe.pins, *recipe.held))
    yield from subject.live(bent)
    yield from (requirement for _who, requirement in subject.asks)


def requirements(subject: Subject) -> Iterator[Finding]:
    """Refuse a package that does not meet a source's requirement, unless the profile overrides it (see `overrides`).

    The fixes are another version of the package, another pin of the source, or an override.
    """
    has = "the lock has" if subject.lock else "the profile has"
    # A pin without local segment means the build on the component's index (`0.1` is 0.1+ascend).
    builds = {(c.package, c.version or ""): c.full_version for c in subject.recipe.wheels}
    for who, requirement in subject.asks:
        name, version = requirement.package, subject.versions.get(requirement.package)
        build = builds.get((name, version or "")) or version
        if version is None or build is None or name in subject.overridden or who.known is None:
            continue
        if requirement.allows(build):
            continue
        part = who.component
        others: dict[str, Known] = {f"commit {pin}": one for pin, one in part.revisions.items() if pin != who.commit}
        others |= {f"release {pin}": one for pin, one in part.releases.items() if pin != who.release}
        fitting = []
        for pin, known in others.items():
            asked = [one for one in subject.live(known.requires) if one.package == name]
            if asked and all(one.allows(version) for one in asked):
                fitting.append(pin)
        ways = [f"take a {name} that {requirement.wanted} allows"]
        ways += [f"take {who.name} at {listed(fitting, 'or')}, which takes {name} {version}"] if fitting else []
        yield error(
            "requirement",
            f"{who.name} {who.version} asks for {requirement.wanted}, {has} {name} {version}",
            f"images/components/{who.name}.yaml: {who.known.source}",
            f"{', '.join(ways)}, or override {name} in {subject.recipe.file} and say why it still works",
        )


def not_there(subject: Subject) -> Iterator[Finding]:
    """Refuse a set without a build that a source requires by local version: the main index does not have it."""
    target, parts = subject.recipe.target, subject.catalog.components
    for who, requirement in subject.asks if subject.lock is None else ():
        name, version = requirement.package, requirement.exact
        if name in subject.versions or version is None or Version(version).local is None or not who.known:
            continue
        names = [n for n, part in parts.items() if not isinstance(part, System) and (part.package or n) == name]
        wheel = f"{name.replace('-', '_')}-{version}-*.whl for Python {target.python} on {target.arch}"
        yield error(
            "requirement",
            f"{who.name} {who.version} asks for {requirement.wanted}, which is not in the set",
            f"images/components/{who.name}.yaml: {who.known.source}",
            f"take component {listed(sorted(names), 'or')} into {subject.recipe.file}; a wheel of your own ({wheel}) "
            "goes into the folder that --wheelhouse (WHEELHOUSE) names",
        )


def overrides(subject: Subject) -> Iterator[Finding]:
    """Report each override in one note, and refuse overrides and constraints that contradict the profile's own pins."""
    recipe = subject.recipe
    asked = subject.asks
    pins = {chosen.package: chosen.version for chosen in recipe.wheels if chosen.version}
    for bound in recipe.profile.constraints:
        # The resolver reports a pin on the command line that does not meet it, and suggests sets that work.
        own = [] if set_aside(bound.requirement, recipe.pins) else [bound.requirement]
        for requirement in subject.live(own):
            pin = pins.get(requirement.package)
            if pin and not requirement.allows(pin):
                what = f"{recipe.file} has {requirement.name} {pin}, and constraint {bound.requirement}"
                fix = f"take another version, or leave out what is inherited: `without: [{requirement.name}]`"
                yield error("constraint", what, bound.reason, fix)
    for override in recipe.profile.overrides:
        requirement = parsed_requirement(override.requirement)
        name = requirement.package
        if name not in subject.overridden:
            continue
        if name in pins and not requirement.allows(pins[name]):
            what = f"{recipe.file} has {name} {pins[name]}, and overrides it with {override.requirement}"
            fix = "take one of the two out; `without` leaves out what is inherited"
            yield error("override", what, override.reason, fix)
        else:
            what = f"{override.requirement} overrides{_other_requirements(subject, requirement, asked)}"
            yield note("override", what, override.reason)


def substitutes(subject: Subject) -> Iterator[Finding]:
    """Report the versions that a stand-in has instead of the profile's."""
    own = {pin.name: pin.version for pin in subject.recipe.profile.components}
    for one in subject.recipe.substitutes:
        what = f"{one.name} {one.version} replaces {own[one.name]}, only on the stand-in base"
        yield note("substitute", what, one.reason)


def _other_requirements(
    subject: Subject, override: PackageRequirement, asked: Sequence[tuple[ChosenSource, PackageRequirement]]
) -> str:
    """Return who requires another version: sources, then rows. If nobody does, return who requires the package."""
    name = override.package
    version = subject.versions.get(name) or override.exact
    wanted = {
        who.package: f"{who.name} asks {requirement.wanted}"
        for who, requirement in asked
        if requirement.package == name and (not requirement.allows(version) if version else requirement.specifier)
    }
    rows = {other: text for other, text in _rows(subject, name, version) if other not in wanted}
    if wanted or rows:
        return f": {', '.join((wanted | rows).values())}"
    via = next((package.via for package in subject.packages if package.name == name), ())
    askers = [asker for asker in via if asker != PROFILE_VIA]
    return f" what {listed(askers)} {'asks' if len(askers) == 1 else 'ask'}" if askers else " what packages ask"


def _rows(subject: Subject, name: str, version: str | None) -> Iterator[tuple[str, str]]:
    """Yield (distribution, text) of releases whose rows have another version of `name`."""
    for other in subject.with_rows(name):
        if name in subject.table.followed[other]:
            continue
        rows = [row for row in judging(subject, other) if name in row.fits]
        if version and rows and not holds(name, rows[0].fits[name], version):
            yield other, f"{other} is made for {phrase(name, rows[0].fits[name])}"


def warned(subject: Subject) -> Iterator[Finding]:
    """Report the profile's own warnings."""
    for item in subject.recipe.profile.warnings:
        yield warning("profile", item.what, f"{subject.recipe.file}: {item.reason}")


def replaced(subject: Subject) -> Iterator[Finding]:
    """Report that another profile has replaced this one, as `list` does."""
    if one := subject.recipe.profile.replaced:
        what = f"documented {one.date}; replaced by {one.by}"
        yield note("profile", what, subject.recipe.file, f"for a new image, take {one.by}")


def stale_patterns(subject: Subject) -> Iterator[Finding]:
    """Report patterns in pip_check_allow that name a release which is not in the set: they have no effect."""
    for pattern in subject.recipe.profile.pip_check_allow if subject.lock else ():
        found = RELEASE.match(pattern)
        if not found:
            continue
        name, named = (found[part].replace("\\", "") for part in ("name", "version"))
        version = subject.versions.get(canonicalize_name(name))
        if version != named:
            has = f"the set has {name} {version}" if version else f"{name} is not in the set"
            yield warning(
                "pip-check-allow",
                f"pip_check_allow is for {name} {named}, and {has}",
                "verify fails on what `pip check` reports of another release",
                f"change or remove {pattern!r} in {subject.recipe.file}",
            )


RULES = (
    *(denied, excluded, exclusive, incomplete, not_there, overrides, replaced, requirements),
    *(stale_patterns, substitutes, torch_free, warned),
)
