"""Where the packages that are bound to an index come from on this host: the index, the host's own files, or nowhere.

A bound package comes from its index, when that answers and has it; else from the host's find-links or extra indexes,
when the pinned version lies there with its local part and fits the target; never from the main index, whose torch is
another build. If neither has it, its place is taken by files that hold only the known requirements of the release, so
that everything else can be locked: the package is then *incomplete*.
"""

from __future__ import annotations

import html
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.core.errors import FindingsError, NetworkError, UsageError
from cannery.core.uv_input import UvIndex, exact_pin
from cannery.core.wheel_tags import uv_platform, wheel_rank
from cannery.edge.files import sha256_file, write_atomic
from cannery.edge.pipconf import without_credentials
from cannery.edge.places import bound_places, extra_places, url_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cannery.core.catalog import Index
    from cannery.core.lock import KnownRelease, LockRequest
    from cannery.edge.indexes import Answer, Listed
    from cannery.edge.pipconf import PipSettings
    from cannery.edge.places import Place


@dataclass(frozen=True)
class Source:
    """Where uv finds a bound package. `place` is None for the files that only stand in for it."""

    package: str
    index: str
    uv: UvIndex
    place: Place | None


def bound_questions(
    names: Sequence[str], request: LockRequest, indexes: Mapping[str, Index], settings: PipSettings
) -> tuple[tuple[Place, str], ...]:
    """Return what has to be asked before `bound_source`, for each of the bound packages `names`.

    Raises `UsageError` for an index that the catalog does not have.
    """
    bindings = index_of(request)
    unknown = sorted({bindings[name] for name in names} - {*indexes})
    if unknown:
        raise UsageError(f"index {unknown[0]!r} is not in the catalog", where="images/indexes.yaml")
    return tuple(
        (place, name) for name in names for place in (*bound_places(bindings[name], indexes), *extra_places(settings))
    )


def index_of(request: LockRequest) -> dict[str, str]:
    """Return normalised package name → index name of what is bound."""
    return {canonicalize_name(name): index for name, index in request.bindings}


def bound_source(name: str, request: LockRequest, answers: Sequence[Answer], folder: Path) -> Source:
    """Choose where the bound package `name` comes from, by the answers of the places; stand-in files go to `folder`.

    Raises `FindingsError` when its index has no file of it for the target, `NetworkError` when the index is not reached
    and nothing is known of the release.
    """
    index = index_of(request)[name]
    pin = exact_pin(request, name)
    mine = [answer for answer in answers if answer.project == name]
    own = [answer for answer in mine if answer.place.index == index]
    for answer in mine:
        if pin is None:
            if answer in own and answer.files:
                return _source(name, index, answer)
            continue
        fitting = _fitting(answer, pin, request)
        if fitting and answer.place.folder is not None:
            return _local_source(name, index, answer.place, fitting, folder)
        if fitting:
            return _source(name, index, answer)
    if any(answer.reached for answer in own):
        raise FindingsError(
            f"{name} {pin or ''}".rstrip() + f": index {index} has no file of it for Python {request.python} on "
            f"{request.arch} ({uv_platform(request.arch)})",
            where=f"profile {request.profile}",
            hint=_offer(name, pin, own),
        )
    return _stand_in(name, index, request, folder, own)


def _fitting(answer: Answer, pin: str, request: LockRequest) -> tuple[Listed, ...]:
    return tuple(
        file
        for file in answer.files
        if Version(file.version) == Version(pin) and wheel_rank(file.file, request.python, request.arch) is not None
    )


def _offer(name: str, pin: str | None, own: Sequence[Answer]) -> str:
    versions = {Version(file.version) for answer in own for file in answer.files}
    if pin is not None and Version(pin) in versions:
        files = sorted(f.file for a in own for f in a.files if Version(f.version) == Version(pin))
        return f"it has {', '.join(files[:6])}{' …' if len(files) > 6 else ''}"
    newest = ", ".join(str(version) for version in sorted(versions, reverse=True)[:8])
    return f"it has {name} {newest}" if newest else f"it lists no {name} at all"


def _source(name: str, index: str, answer: Answer) -> Source:
    place = answer.place
    url = without_credentials(place.url)
    return Source(name, index, UvIndex(f"{index}-{name}", url, place.links, explicit=True, dated=answer.dated), place)


def _local_source(name: str, index: str, place: Place, files: Sequence[Listed], folder: Path) -> Source:
    """An index page of our own for files on the disk, with their hashes: uv would unpack a wheel to get one (10 s)."""
    links = ""
    for file in files:
        path = url_path(file.url)
        if not path.is_file():
            raise NetworkError(f"{place} lists {file.file}, which is not there")
        sha256 = file.sha256 or sha256_file(path)
        links += f'<a href="{html.escape(path.as_uri())}#sha256={sha256}">{html.escape(file.file)}</a>\n'
    write_atomic(folder / name / "index.html", f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")
    return Source(name, index, UvIndex(f"{index}-{name}", folder.as_uri(), explicit=True, dated=False), place)


def _stand_in(name: str, index: str, request: LockRequest, folder: Path, own: Sequence[Answer]) -> Source:
    pin = exact_pin(request, name)
    releases = [r for r in request.stand_ins if canonicalize_name(r.name) == name and _same(r.version, pin)]
    if not releases:
        raise NetworkError(
            f"{name} {pin or ''}".rstrip()
            + f" comes from index {index}, which was not reached, and nothing is known of it",
            where=f"profile {request.profile}",
            hint="; ".join(str(answer) for answer in own),
        )
    for release in releases:
        _write_wheel(folder, release, pin or release.version)
    flat = UvIndex(f"{index}-{name}", folder.as_uri(), flat=True, explicit=True, dated=False)
    return Source(name, index, flat, None)


def _same(version: str, pin: str | None) -> bool:
    """Whether facts of `version` hold for the pin: a release has the same requirements under every local part."""
    return pin is None or version == pin or Version(version) == Version(Version(pin).public)


def known_sources(request: LockRequest, folder: Path) -> tuple[Source, ...]:
    """Return a source for each component that comes from git: a file in `folder` that holds what it asks for."""
    for release in request.sources:
        _write_wheel(folder, release, release.version)
    flat = UvIndex("sources", folder.as_uri(), flat=True, explicit=True, dated=False)
    return tuple(Source(release.name, flat.name, flat, None) for release in request.sources)


def _write_wheel(folder: Path, release: KnownRelease, version: str) -> None:
    """Write a wheel that holds nothing but metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{canonicalize_name(release.name).replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {release.name}\nVersion: {version}\n"
    metadata += f"Requires-Python: {release.requires_python}\n" if release.requires_python else ""
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in release.requires)
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
        wheel.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: cannery\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
