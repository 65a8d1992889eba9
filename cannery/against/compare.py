"""Misfits inside an image, and its differences from a profile, the most serious first.

An image is its Python, packages, CANN, OS, environment and Cannery's manifest. Its packages are checked against each
other by the compatibility table and by their own metadata.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.compatibility import CANN, PYTHON
from cannery.catalog.target import is_version, live, marker_environment, order, without_build
from cannery.compat.subject import holds, phrase
from cannery.plan.manifest import MANIFEST_PATH, MANIFEST_SCHEMA
from cannery.recipe.environment import ATB_HOME, BUILD, DEFAULT_PATH, expand_env, image_environment
from cannery.recipe.recipe import is_left_out, package_of
from cannery.recipe.select import TORCH, TORCH_NPU
from cannery.vocab import Arch, BaseKind, Install

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cannery.catalog.catalog import BaseLine, Catalog
    from cannery.catalog.compatibility import Compatibility
    from cannery.engine.oci import EngineImage
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe

TOOLKIT = "toolkit"
TOOLKIT_VERSION = re.compile(r"^version=(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Distribution:
    """An installed distribution; `requires` are its PEP 508 requirements."""

    name: str
    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Image:
    """The content of an image.

    `python` is the version (`major.minor`) of the first Python on PATH, `packages` are what it can import, by
    normalised name. `cann` maps parts of CANN (toolkit, nnal) to versions. `manifest` is Cannery's own; None for an
    image that Cannery did not build.
    """

    config: EngineImage
    os: str
    python: str
    prefix: str
    packages: Mapping[str, Distribution]
    cann: Mapping[str, str]
    manifest: Mapping[str, Any] | None = None

    @property
    def toolkit(self) -> str:
        """The version of the CANN in use; "" without CANN."""
        return self.cann.get(TOOLKIT, "")


def version_files(bases: Mapping[str, BaseLine]) -> tuple[str, ...]:
    """Return the files in which CANN records its versions."""
    return tuple(dict.fromkeys(path for _name, _pattern, path in _version_files(bases)))


def read_facts(config: EngineImage, seen: Mapping[str, Any], bases: Mapping[str, BaseLine]) -> Image:
    """Return the content of an image; `seen` is what `cannery.against.io.look` prints."""
    packages: dict[str, Distribution] = {}
    for name, version, requires in seen["packages"]:
        one = Distribution(canonicalize_name(str(name)), str(version), tuple(map(str, requires)))
        packages.setdefault(one.name, one)  # the first one on the search path is imported
    texts = seen["texts"]
    release = (texts.get("/etc/os-release") or texts.get("/usr/lib/os-release", "")).splitlines()
    os = {name: value.strip("\"' ") for name, _, value in (line.partition("=") for line in release)}
    return Image(
        config=config,
        os=f"{os.get('ID', '')}{os.get('VERSION_ID', '')}".lower(),
        python=seen["python"],
        prefix=seen["prefix"],
        packages=packages,
        cann=_cann(seen["versions"], bases),
        manifest=_manifest(texts.get(MANIFEST_PATH, "")),
    )


def _version_files(bases: Mapping[str, BaseLine]) -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield (part of CANN, pattern of its version, path) of each version file of the base lines."""
    for file in (file for line in bases.values() for file in line.version_files):
        pattern = re.escape(file.line).replace(re.escape("{version}"), r"(\S+)")
        for arch in Arch:
            yield file.name, re.compile(rf"^{pattern}\s*$", re.MULTILINE), file.at(arch)


def _cann(seen: Mapping[str, Any], bases: Mapping[str, BaseLine]) -> dict[str, str]:
    """Return the version of each part of CANN. Of several, the environment's is used, or else the newest."""
    asked = [*_version_files(bases), *((TOOLKIT, TOOLKIT_VERSION, path) for path in seen if path.endswith(".info"))]
    found = [(*seen[path], name, pattern) for name, pattern, path in asked if path in seen]
    versions = [
        (is_used, order(match[1]), name, without_build(match[1].lower()))
        for is_used, text, name, pattern in found
        if (match := pattern.search(text))
    ]
    return {name: version for _used, _order, name, version in sorted(versions)}


def _manifest(text: str) -> Mapping[str, Any] | None:
    """Return a manifest of this schema; None for any other text, and for an edited manifest."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("schema") != MANIFEST_SCHEMA:
        return None
    target, sources = value.get("target"), value.get("sources")
    if not isinstance(target, dict) or not isinstance(sources, list):
        return None
    texts = [value.get("profile"), value.get("plan"), *target.values()]
    is_whole = all(isinstance(one, str) for one in texts) and all(isinstance(one, dict) for one in sources)
    return value if is_whole else None


TOOLKIT_HOME = "ASCEND_TOOLKIT_HOME"
CORE = frozenset({TORCH, TORCH_NPU})
# Local version labels of builds for other hardware. Any other label (cpu, none, a commit) is the same package.
ACCELERATOR = re.compile(r"(cu\d+|rocm|xpu)")
TOOLS = frozenset({"pip", "setuptools", "wheel", "uv", "distribute"})
NOT_IN_ENV = "docker exec and Kubernetes read no .bashrc and no set_env.sh"
NAMED = 8
# How many lines of one kind, and how many extra packages, are printed.
SHOWN = 15
EXTRAS_SHOWN = 12
HEADER = ("profile", "packages", "CANN", "Python")
NONE = "none"


@dataclass(frozen=True)
class Expected:
    """What an image of `recipe` should hold. `packages` are versions of the lock and of sources, by normalised name."""

    recipe: Recipe
    packages: Mapping[str, str]
    catalog: Catalog

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.recipe.name

    @property
    def named(self) -> set[str]:
        """The packages that the profile names."""
        return {one.package for one in self.recipe.chosen}

    @property
    def cann(self) -> str:
        """The CANN of the target, without a build number."""
        return without_build(self.recipe.target.cann)


def expected(recipe: Recipe, lock: Lock, catalog: Catalog) -> Expected:
    """Return what an image of `recipe` with the packages of `lock` should hold."""
    # A tree on PYTHONPATH has no metadata, so it cannot be found in an image.
    seen = [one for one in recipe.sources if one.version and one.component.install is not Install.TREE]
    built = {one.package: one.version or "" for one in seen if not is_left_out(recipe, one)}
    sources = {one.package for one in recipe.sources}
    locked = {package.name: package.version for package in lock.packages if package.name not in sources}
    return Expected(recipe, {**locked, **built}, catalog)


class Kind(StrEnum):
    """Kinds of differences, the most serious first. An image with only `NOTE`s is equal to the profile."""

    UNFIT = "does not fit together"
    BREAKS = "breaks first"
    MISSING = "missing"
    VERSION = "version"
    ENVIRONMENT = "environment"
    NOTE = "note"


@dataclass(frozen=True)
class Difference:
    """One difference: its subject, the wanted value ("" for none), the found value, and a note."""

    kind: Kind
    subject: str
    wanted: str
    found: str
    note: str = ""

    def __str__(self) -> str:
        found = self.found or "not there"
        text = f"{found}, wanted: {self.wanted}" if self.wanted else found
        return f"{self.subject}: {text}" + (f" ({self.note})" if self.note else "")


def misfits(image: Image, table: Compatibility, settled: Collection[str]) -> Iterator[Difference]:
    """Yield packages that do not fit each other, each pair once: first those of the table, with torch_npu first.

    A pair of two `settled` packages is left out: the profile has both.
    """
    packages = sorted(image.packages.values(), key=lambda one: one.name)
    first = sorted(packages, key=lambda one: one.name != TORCH_NPU)
    found = [
        *((one, *misfit) for one in first for misfit in _by_table(one, image, table)),
        *((one, *misfit, "its own metadata") for one in packages for misfit in _by_metadata(one, image)),
    ]
    known = set[tuple[str, str]]()
    for one, key, wanted, source in found:
        if (one.name, key) not in known and not {one.name, key} <= {*settled}:
            known.add((one.name, key))
            # A set may run on a CANN that is not in the table: only a note, as `check` only warns.
            kind, have = Kind.NOTE if key == CANN else Kind.UNFIT, phrase(key, _versions(image)[key])
            yield Difference(kind, f"{one.name} {one.version}", phrase(key, wanted), have, source)


def _by_table(one: Distribution, image: Image, table: Compatibility) -> Iterator[tuple[str, str, str]]:
    """Yield (key, wanted value, source) if no row of the package's release fits. One fitting row is enough."""
    if not is_version(one.version):
        return
    here = _versions(image)
    rows = table.rows_of(one.name, one.version)
    for key in sorted({key for row in rows for key in row.fits if here.get(key)}):
        saying = [row for row in rows if key in row.fits]
        if not any(holds(key, row.fits[key], here[key]) for row in saying):
            wanted = " or ".join(dict.fromkeys(row.fits[key] for row in saying))
            yield key, wanted, str(table.sources[saying[0].source])
    torch = here.get(TORCH, "")
    if one.name == TORCH_NPU and not rows and torch:
        wanted = Version(one.version).base_version
        if Version(torch).base_version != wanted:
            yield TORCH, wanted, "torch_npu X.Y.Z is an extension of torch X.Y.Z"


def _by_metadata(one: Distribution, image: Image) -> Iterator[tuple[str, str]]:
    """Yield (name, range) of each requirement that an installed package does not meet; a missing package is ignored."""
    environment = {**marker_environment(image.python, Arch(image.config.arch)), "extra": ""}
    here = _versions(image)
    for requirement in live(one.requires, environment):
        name = requirement.package
        if name in image.packages and name in here and not requirement.allows(here[name]):
            yield name, str(requirement.specifier)


def _versions(image: Image) -> Mapping[str, str]:
    packages = {name: one.version for name, one in image.packages.items() if is_version(one.version)}
    return {**packages, CANN: image.toolkit, PYTHON: image.python}


@dataclass(frozen=True)
class Comparison:
    """An image compared with one profile: the differences, and the names of packages with equal versions."""

    expected: Expected
    image: Image
    equal: frozenset[str]
    differences: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether no difference matters."""
        return all(one.kind is Kind.NOTE for one in self.differences)

    @property
    def _expected_names(self) -> set[str]:
        return {*self.expected.packages} | self.expected.named

    @property
    def extras(self) -> tuple[str, ...]:
        """`name version` of packages that the profile does not have."""
        packages = sorted(self.image.packages.items())
        return tuple(f"{name} {one.version}" for name, one in packages if name not in self._expected_names | TOOLS)

    @property
    def distance(self) -> tuple[int, float]:
        """The number of engines (vllm, sglang …) that only the image has, then the share of packages that differ.

        An engine is a package that some profile builds from a repository. It shows what an image is for.
        """
        sources = self.expected.catalog.sources.items()
        engines = {package_of(name, one) for name, one in sources if one.hosts}
        lacking = (engines & self.image.packages.keys()) - self._expected_names
        count = len(self.expected.packages) + 2
        place = (self.image.toolkit == self.expected.cann) + (self.image.python == self.expected.recipe.target.python)
        return len(lacking), 1 - (len(self.equal) + place) / count


def compare(expected: Expected, image: Image) -> Comparison:
    """Compare an image with a profile, and its packages with each other."""
    equal = {name for name, version in expected.packages.items() if is_equal(version, _version(image, name))}
    settled = equal | ({CANN} if image.toolkit == expected.cann else set())
    settled |= {PYTHON} if image.python == expected.recipe.target.python else set()
    differences = [
        *misfits(image, expected.catalog.compatibility, settled),
        *_target(expected, image),
        *_packages(expected, image),
        *_forbidden(expected, image),
        *_environment(expected, image),
    ]
    kinds = list(Kind)
    ordered = sorted(differences, key=lambda one: kinds.index(one.kind))
    return Comparison(expected, image, frozenset(equal), tuple(ordered))


def nearest(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Return the comparisons sorted by distance, then by name."""
    return tuple(sorted(comparisons, key=lambda one: (one.distance, one.expected.name)))


def is_equal(wanted: str, found: str) -> bool:
    """Whether two versions are the same package: their public parts and hardware builds are equal."""
    if not is_version(found):
        return False
    one, other = Version(wanted), Version(found)
    return Version(one.public) == Version(other.public) and _accelerator(one) == _accelerator(other)


def _accelerator(version: Version) -> str:
    match = ACCELERATOR.match(version.local or "")
    return match[1] if match else ""


def _version(image: Image, name: str) -> str:
    one = image.packages.get(name)
    return (one.version or "?") if one else ""


def _target(expected: Expected, image: Image) -> Iterator[Difference]:
    target = expected.recipe.target
    if image.toolkit != expected.cann:
        yield Difference(Kind.BREAKS, "CANN", expected.cann, image.toolkit)
    elif image.toolkit:
        for name in sorted({file.name for file in expected.recipe.base.line.version_files}):
            if image.cann.get(name, "") != expected.cann:
                yield Difference(Kind.BREAKS, f"CANN's {name}", expected.cann, image.cann.get(name, ""))
    if image.python != target.python:
        yield Difference(Kind.BREAKS, "Python", target.python, image.python or "none that has packages")
    # The OS of a stand-in is not the target's.
    if expected.recipe.base.kind is not BaseKind.STANDIN and image.os != target.os:
        yield Difference(Kind.NOTE, "OS", target.os, image.os)


def _packages(expected: Expected, image: Image) -> Iterator[Difference]:
    """Yield differences of packages; those that the profile names come first."""
    for name, version in sorted(expected.packages.items(), key=lambda item: (item[0] not in expected.named, item[0])):
        found = _version(image, name)
        if not found or not is_equal(version, found):
            kind = Kind.BREAKS if name in CORE else Kind.VERSION if found else Kind.MISSING
            yield Difference(kind, name, version, found, "named by the profile" if name in expected.named else "")


def _forbidden(expected: Expected, image: Image) -> Iterator[Difference]:
    """Yield packages that overwrite each other's files, and denied packages that the profile does not have."""
    have = image.packages
    table = expected.catalog.compatibility
    for names in table.exclusive:
        if len(both := [name for name in names if name in have]) > 1:
            listed = " and ".join(f"{name} {have[name].version}" for name in both)
            why = "they overwrite each other's files"
            yield Difference(Kind.BREAKS, "one folder for two", "one of them", listed, why)
    for denied in table.denied(have):  # an image does not show where a package came from
        found = [name for name in sorted(have) if fnmatchcase(name, denied.pattern) and name not in expected.packages]
        if found:
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            yield Difference(Kind.BREAKS, denied.pattern, "none", ", ".join(found[:NAMED]) + more, denied.reason)


def _environment(expected: Expected, image: Image) -> Iterator[Difference]:
    """Yield the profile's variables that are missing in the image's ENV or have another value."""
    env = image.config.env
    recipe = expected.recipe
    line, tag, target = recipe.base.line, recipe.base.found, recipe.target
    base = expand_env(line, target, tag) if tag is not None and target.os in line.env else {"PATH": DEFAULT_PATH}
    own = [*(name for one in recipe.chosen for name in one.component.env), *recipe.profile.env]
    all_wanted = image_environment(recipe, base)
    # Only variables that the profile, its components or CANN's folder decide.
    for name in dict.fromkeys(name for name in (ATB_HOME, TOOLKIT_HOME, *own) if name in all_wanted):
        wanted, found = all_wanted[name], env.get(name, "")
        if name == ATB_HOME and found:
            mine, other = BUILD.fullmatch(wanted), BUILD.fullmatch(found)
            if mine and other and mine["abi"] != other["abi"]:
                why = "torch_npu has the other C++ ABI: operators of ATB fail to load"
                yield Difference(Kind.BREAKS, ATB_HOME, wanted, found, why)
        elif found != wanted and not (name == TOOLKIT_HOME and found):  # another CANN there is reported already
            note = "" if found else NOT_IN_ENV if name in {TOOLKIT_HOME, ATB_HOME} else "not in ENV"
            yield Difference(Kind.ENVIRONMENT, name, wanted, found, note)


def report_lines(
    reference: str, comparisons: Sequence[Comparison], skipped: Mapping[str, str], *, every: bool = False
) -> Iterator[str]:
    """Yield the lines of the report: `comparisons`, the nearest first, and `skipped` profiles with reasons.

    Long lists are cut unless `every`.
    """
    best, image = comparisons[0], comparisons[0].image
    python = f"Python {image.python or NONE}" + (f" at {image.prefix}" if image.prefix else "")
    parts = (image.config.arch, image.os or "no known OS", python, f"CANN {image.toolkit or NONE}")
    yield f"{reference}: {', '.join(parts)}, {len(image.packages)} packages"
    if image.manifest is not None:
        yield f"made by Cannery as {image.manifest['profile']}, plan {image.manifest['plan']}"
    yield from _differences([one for one in best.differences if one.kind is Kind.UNFIT], every=every)
    rows = [HEADER]
    for one in comparisons:
        packages = f"{len(one.equal)} of {len(one.expected.packages)}"
        cann = _pair(one.image.toolkit, one.expected.cann)
        rows.append((one.expected.name, packages, cann, _pair(one.image.python, one.expected.recipe.target.python)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    for name, reason in skipped.items():
        yield f"{name}: not compared: {reason}"
    yield from _differences([one for one in best.differences if one.kind is not Kind.UNFIT], every=every)
    if best.extras:
        listed = ", ".join(_folded(best.extras, EXTRAS_SHOWN, every=every))
        yield f"not in the profile: {len(best.extras)} packages: {listed}"
    whose = f"profile {best.expected.name}" if len(comparisons) == 1 else f"the nearest profile is {best.expected.name}"
    count = sum(one.kind is not Kind.NOTE for one in best.differences)
    yield f"{whose}: " + (f"differences that matter: {count}" if count else "equal in all that matters")


def _differences(differences: Sequence[Difference], *, every: bool) -> Iterator[str]:
    for kind, group in groupby(differences, key=lambda one: one.kind):
        yield f"{kind}:"
        yield from (f"  {line}" for line in _folded([str(one) for one in group], SHOWN, every=every))


def _folded(words: Sequence[str], most: int, *, every: bool) -> Iterator[str]:
    yield from words if every else words[:most]
    if len(words) > most and not every:
        yield f"… and {len(words) - most} more (--all)"


def _pair(found: str, wanted: str) -> str:
    return f"{wanted}, equal" if found == wanted else f"{wanted}, not {found or NONE}"
