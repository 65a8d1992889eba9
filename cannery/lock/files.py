"""Files of packages: which fit a target, the best first; which a lock is missing, and where they are published."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from cannery.catalog.versions import parsed_version
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cannery.catalog.addresses import Index, Published
    from cannery.lock.lock import Lock, LockedPackage


class File(Protocol):
    """A file that an index lists, or a lock has."""

    @property
    def file(self) -> str:
        """Its name."""


F = TypeVar("F", bound=File)
# What torch's and torch_npu's wheels ask: the glibc of the oldest system that images are built on (manylinux_2_28).
GLIBC = (2, 28)
# What all other systems have: openEuler 22.03 has 2.34, Ubuntu 22.04 2.35, Debian 12 2.36. Where no wheel is for the
# older one, a wheel for this one is better than a source distribution that a stage has to compile.
NEWER = (2, 34)
# Older spellings of a manylinux level (PEP 600), and the first glibc that had the arch.
LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
FIRST = {Arch.AMD64: (2, 5), Arch.ARM64: (2, 17)}
# Name, version, build and tags of a wheel by its file name. Reading, checking and choosing ask for the same ones.
parsed_wheel = cache(parse_wheel_filename)


def uv_platform(arch: Arch) -> str:
    """Return the target platform in uv's words."""
    return f"{arch.machine}-manylinux_{NEWER[0]}_{NEWER[1]}"


def _platforms(arch: Arch) -> tuple[str, ...]:
    names: list[str] = []
    for minor in range(GLIBC[1], FIRST[arch][1] - 1, -1):
        names.append(f"manylinux_2_{minor}_{arch.machine}")
        if (2, minor) in LEGACY:
            names.append(f"{LEGACY[2, minor]}_{arch.machine}")
    return (*names, f"linux_{arch.machine}")


def _newer(arch: Arch) -> tuple[str, ...]:
    return tuple(f"manylinux_2_{minor}_{arch.machine}" for minor in range(GLIBC[1] + 1, NEWER[1] + 1))


@cache
def target_tags(python: str, arch: Arch) -> Mapping[Tag, int]:
    """Return every wheel tag that CPython `python` takes on `arch`, with its rank: 0 is the best."""
    version = tuple(int(part) for part in python.split("."))
    abi = "cp" + "".join(python.split("."))
    tags = [
        tag
        for platforms in (_platforms(arch), _newer(arch))
        for tag in (*cpython_tags(version, [abi], platforms), *compatible_tags(version, abi, platforms))
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def wheel_rank(file: str, python: str, arch: Arch) -> tuple[int, int, str] | None:
    """Return a key by which wheels of one version sort, the best first; None when `file` does not fit the target."""
    try:
        _name, _version, build, tags = parsed_wheel(file)
    except InvalidWheelFilename:
        return None
    known = target_tags(python, arch)
    ranks = [known[tag] for tag in tags if tag in known]
    if not ranks:
        return None
    return min(ranks), -(build[0] if build else 0), file


def installable(file: str, python: str, arch: Arch) -> bool:
    """Whether a file can be installed on the target: a wheel that fits it, or a source distribution."""
    return not file.endswith(".whl") or wheel_rank(file, python, arch) is not None


def best_wheel(files: Iterable[F], python: str, arch: Arch) -> F | None:
    """Return the one of `files` that an installer takes on the target, None when none fits."""
    ranked = [(rank, one) for one in files if (rank := wheel_rank(one.file, python, arch))]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def with_published(lock: Lock, published: Mapping[str, Published]) -> Lock:
    """Return `lock` with the published file of each package that has none: the best one for the target.

    `published` is by index name. A size that is not published is 0.
    """
    return replace(lock, packages=tuple(_known(package, lock, published) for package in lock.packages))


def _known(package: LockedPackage, lock: Lock, published: Mapping[str, Published]) -> LockedPackage:
    if package.complete or package.index not in published:
        return package
    wanted = package.name, parsed_version(package.version)
    files = [one for one in published[package.index].files if parsed_wheel(one.file)[:2] == wanted]
    best = best_wheel(files, lock.python, lock.arch)
    return replace(package, file=best.file, sha256=best.sha256, size=best.size) if best else package


def with_known_files(new: Lock, old: Lock | None) -> Lock:
    """Return `new` with what `old` has of packages whose index was not reached: file, hash and size.

    Only of the same version, from the same index, for the same Python and arch, and up to no later a day: that is what
    the index would have answered. Who asks for the package is `new`'s own. It
    is taken before a published hash (of which `size` is 0), since the index itself gave it.
    """
    if old is None or (old.python, old.arch) != (new.python, new.arch) or old.exclude_newer > new.exclude_newer:
        return new
    known = {(p.name, p.version, p.index): p for p in old.packages if p.size}
    packages = tuple(
        replace(found, via=package.via)
        if not package.size and (found := known.get((package.name, package.version, package.index)))
        else package
        for package in new.packages
    )
    return replace(new, packages=packages)


def missing_packages(lock: Lock) -> tuple[LockedPackage, ...]:
    """Return the packages whose file is not known."""
    return tuple(package for package in lock.packages if not package.complete)


def names_of(packages: Sequence[LockedPackage]) -> str:
    """Return packages as text: `torch 2.8.0+cpu, torchvision 0.23.0+cpu`."""
    return ", ".join(f"{package.name} {package.version}" for package in packages)


def published_at(package: LockedPackage, indexes: Mapping[str, Index]) -> str:
    """Return where the makers of a package publish its wheels; of wheels of the user's own, how to give them."""
    index = indexes.get(package.index)
    if index is not None and not index.urls:
        return "in a folder of yours, named by WHEELHOUSE (it is on no index)"
    pages = [f"{url.rstrip('/')}/{package.name}/" for url in index.urls] if index else []
    return f"on index {package.index}" + (f" ({' or '.join(pages)})" if pages else "")


def public_mirrors(names: Collection[str], indexes: Mapping[str, Index]) -> str:
    """Return the public mirrors of indexes that are not used yet, and how to use them; "" for none."""
    found = [
        f"{' or '.join(index.public_pages)} is a mirror of {name}, to be named in [mirrors.pages] of cannery.toml"
        for name, index in sorted(indexes.items())
        if name in names and index.public_pages and not index.pages
    ]
    return "; ".join(found)
