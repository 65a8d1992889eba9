"""Rules about the target: whether a CANN image exists for it, and whether the set fits its chip, Python and driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.catalog.compatibility import DRIVER, PYTHON, Rank
from cannery.catalog.component import Native
from cannery.catalog.target import order, parsed_range, parsed_version, series_of, without_build
from cannery.compat.subject import Finding, cited, departure, error, holds, judging, listed, note, warning
from cannery.util.addresses import parse_reference
from cannery.vocab import BaseKind, ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.catalog.compatibility import Row
    from cannery.catalog.target import Target
    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen, Recipe


OFFERED = 8
# The tag of a CANN image: <cann>-<chip>-<os>-py<python>, maybe with a suffix.
TAG = re.compile(
    r"(?P<cann>\d+\.\d+(?:\.\w+)?)-(?P<chip>910b|910|a3|310p|950\w*|a5)-(?P<os>[a-z_]+[\d.]+)-py(?P<python>3\.\d+)"
)
# The report that a build needs the name of its chip.
REPORT = "vllm-project/vllm-ascend pull 7278"


def base_tag(subject: Subject) -> Iterator[Finding]:
    """Refuse a target without a CANN image. They exist only for some combinations of chip, OS and Python."""
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


def custom_base(subject: Subject) -> Iterator[Finding]:
    """Compare the tag of the user's own base with the target. Copies of CANN images usually keep their tag."""
    recipe, target = subject.recipe, subject.recipe.target
    if recipe.base.kind is not BaseKind.CUSTOM:
        return
    (reference,) = recipe.base.references
    found = TAG.search(parse_reference(reference).tag.lower())
    named = found.groupdict() if found else {}
    if named:
        named["chip"] = "950" if named["chip"].startswith(("950", "a5")) else named["chip"]
    mine = {"cann": without_build(target.cann), "chip": str(target.chip), "os": target.os, "python": target.python}
    wrong = {name: value for name, value in named.items() if value != mine[name]}
    if wrong:
        words = ", ".join(f"{name} {value} (target: {mine[name]})" for name, value in wrong.items())
        fix = " ".join(f"{name.upper()}={value}" for name, value in wrong.items())
        yield warning("base.tag", f"the tag of {reference} names {words}", "checks and locks are the target's", fix)


def near(tags: Sequence[str], target: Target) -> list[str]:
    """Return up to eight tags, sorted by how many parts they share with the target's tag."""
    parts = {*target.base_tag.split("-")}
    return sorted(tags, key=lambda tag: (-len(parts & {*tag.split("-")}), tag))[:OFFERED]


def pythons(subject: Subject) -> Iterator[Finding]:
    """Refuse releases that do not run on the target's Python.

    The source's metadata and the weightiest row must both allow it, since metadata often has no upper bound. If only
    a page contradicts the metadata, the finding is a disagreement.
    """
    target, sources = subject.recipe.target, subject.table.sources
    # {distribution: (range, source)} of metadata and of rows, the weightiest first.
    own = {
        one.package: [(one.known.requires_python, f"images/components/{one.name}.yaml: {one.known.source}")]
        for one in subject.recipe.sources
        if one.known and one.known.requires_python and one.package in subject.versions
    }
    rows = {name: [row for row in judging(subject, name) if PYTHON in row.fits] for name in subject.with_rows(PYTHON)}
    for name in sorted({*own, *rows}):
        of_rows = [(row.fits[PYTHON], str(sources[row.source])) for row in rows.get(name, [])]
        is_weak = bool(of_rows) and sources[rows[name][0].source].rank is Rank.DOCUMENT
        deciding = [*of_rows[:1], *own.get(name, [])]
        wrong = [one for one in deciding if not _contains(one[0], target.python)]
        heavy = wrong if len(wrong) == len(deciding) else [one for one in wrong if not (is_weak and one in of_rows)]
        release, ranges = f"{name} {subject.versions[name]}", [*of_rows, *own.get(name, [])]
        if heavy:
            wanted, source = heavy[0]
            what = f"{release} does not fit Python {target.python}: it is for Python {wanted}"
            yield error("python-range", what, source, _bases(subject, wanted))
        elif not all(_contains(wanted, target.python) for wanted, _ in ranges):
            read = "; ".join(f"{wanted} ({source})" for wanted, source in ranges)
            what = f"sources disagree about the Pythons of {release}: {read}"
            yield warning("fit-disagree", what, f"the target has Python {target.python}")


def _contains(wanted: str, python: str) -> bool:
    """Whether `wanted`, a version or a range, includes Python `X.Y`. A bound like >=3.9.2 includes Python 3.9."""
    if wanted[0].isdigit():
        return holds(PYTHON, wanted, python)
    return any(parsed_range(wanted).contains(parsed_version(text)) for text in (python, f"{python}.99"))


def _bases(subject: Subject, wanted: str) -> str:
    """List the CANN images whose Python fits, those most like the target first."""
    every = {tag: found for line in subject.catalog.bases.values() for tag, found in line.tags.items()}
    tags = [tag for tag, found in every.items() if _contains(wanted, series_of(found.python))]
    fitting = ", ".join(near(tags, subject.recipe.target))
    return f"bases that fit: {fitting}" if tags else "no CANN image has such a Python"


def driver(subject: Subject) -> Iterator[Finding]:
    """Report the oldest driver that works with all releases of the set, from the rows that the set meets."""
    deciding = asking(subject)
    if deciding:
        cell = deciding[0].fits[DRIVER]
        wanted = f"{cell} or newer" if cell[0].isdigit() else cell
        what = f"the host needs driver {wanted}: {who(deciding)} asks for it"
        yield note("driver", what, cited(subject.table, deciding))


def who(rows: Sequence[Row]) -> str:
    """Return the releases of rows as a text."""
    return listed(f"{row.name} {row.version}" for row in rows)


def asking(subject: Subject) -> list[Row]:
    """Return the rows that require the newest driver, among those that the set meets."""
    rows = [
        row
        for name in subject.with_rows(DRIVER)
        for row in judging(subject, name)
        if DRIVER in row.fits and not departure(subject, row)
    ]
    # Compared by lower bound, which comes first in a range.
    cells = (row.fits[DRIVER] for row in rows)
    newest = max(cells, key=lambda cell: order(cell.partition(",")[0].lstrip(">=< ")), default="")
    return [row for row in rows if row.fits[DRIVER] == newest]


def chips(subject: Subject) -> Iterator[Finding]:
    """Refuse components that do not work on the target's chip, and prebuilt kernels for another chip."""
    chip = subject.recipe.target.chip
    for chosen in subject.recipe.chosen:
        file, known = f"images/components/{chosen.name}.yaml", chosen.known
        if chosen.component.chips and chip not in chosen.component.chips:
            names = listed(chosen.component.chips, "or")
            yield error(
                "chip",
                f"{chosen.name} does not work on chip {chip}: it is for {names}",
                file,
                f"leave it out of {subject.recipe.file}, or build for {names}",
            )
        elif known and known.chips and chip not in known.chips:
            made, whose = listed(known.chips, "or"), f"{chosen.name} {chosen.version}"
            yield error(
                "chip",
                f"{whose} has ready-made kernels for chip {made} alone, the target has {chip}",
                f"{file}: {known.source}",
                _from_source(subject, chosen) or f"build for {made}",
            )


def _from_source(subject: Subject, chosen: Chosen) -> str:
    """List the commits that would be compiled for the chip, or return ""."""
    component, chip = chosen.component, subject.recipe.target.chip
    if not isinstance(component, Native):
        return ""
    commits = [(revision.version, commit) for commit, revision in component.revisions.items() if not revision.chips]
    if not commits:
        return ""
    commits.sort(key=lambda pair: pair[0] != chosen.version)
    pins = " or ".join(f"{commit} ({version})" for version, commit in commits)
    socs = _socs(subject).get(chip, ())
    value = f", with {component.soc_variable}={socs[0]}" if component.soc_variable and socs else ""
    return f"pin a commit in the release's place, so that it is compiled for {chip}{value}: {pins}"


def socs(subject: Subject) -> Iterator[Finding]:
    """Refuse a variable that names another chip, and a native build for a chip whose name in builds is not known."""
    chip = subject.recipe.target.chip
    known = _socs(subject).get(chip, ())
    built = {c.name for c in compiled(subject.recipe)}
    for chosen in subject.recipe.sources:
        variable = chosen.component.soc_variable if isinstance(chosen.component, Native) else None
        if variable and known:
            settings: dict[str, Mapping[str, str]] = {f"env of {subject.recipe.file}": subject.recipe.profile.env}
            settings |= {f"env of images/components/{c.name}.yaml": c.component.env for c in subject.recipe.chosen}
            settings[f"build_env of images/components/{chosen.name}.yaml"] = chosen.component.build_env
            found = {where: env[variable] for where, env in settings.items() if variable in env}
            for where, value in found.items():
                if value.lower() not in {soc.lower() for soc in known}:
                    yield error(
                        "soc",
                        f"{where} sets {variable}={value}, which is not the target's chip {chip}",
                        f"{chosen.name} is compiled for the value of {variable}; tag and wheels follow CHIP ({REPORT})",
                        f"leave {variable} out, it follows from CHIP; values of {chip}: {', '.join(known)}",
                    )
        elif variable and chosen.name in built:
            usual = ", ".join(f"{values[0]} ({name})" for name, values in sorted(_socs(subject).items()))
            yield error(
                "soc",
                f"the value of {variable} for chip {chip} is not known, and {chosen.name} is compiled for it",
                f"no build host can ask npu-smi ({REPORT})",
                f"add `socs` of {chip} to images/chips.yaml; the values of other chips: {usual or 'none'}",
            )


def _socs(subject: Subject) -> Mapping[str, tuple[str, ...]]:
    """Return {chip: its known names in native builds}."""
    return {str(chip): access.socs for chip, access in subject.catalog.chips.items() if access.socs}


def compiled(recipe: Recipe) -> tuple[Chosen, ...]:
    """Return the native components that are compiled: all except releases with prebuilt kernels.

    On a stand-in, components with a `standin` entry are not compiled either.
    """
    native = (c for c in recipe.sources if c.component.kind is ComponentKind.NATIVE)
    return tuple(c for c in native if not (c.release and c.known and c.known.chips) and recipe.standin_of(c) is None)


def emulation(subject: Subject) -> Iterator[Finding]:
    """Warn about components that are compiled under QEMU. All other steps run on the arch of the build machine."""
    names = [chosen.name for chosen in compiled(subject.recipe)]
    arch = subject.recipe.target.arch
    if names and subject.build_arch not in {None, arch}:
        yield warning(
            "emulation",
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} compiled under emulation: "
            f"the target is {arch}, this machine {subject.build_arch}",
            "about eight times slower (docker/buildx issue 2810)",
            f"BUILDER=<name> of a buildx builder with a native {arch} node, or a machine of that arch",
        )


RULES = (base_tag, chips, custom_base, driver, emulation, pythons, socs)
