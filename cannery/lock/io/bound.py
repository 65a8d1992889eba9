"""Where the packages that are bound to an index come from on this host: the index, the host's own files, or nowhere.

A bound package comes from its index, when that answers and has it; else from the host's find-links or extra indexes,
when the pinned version lies there with its local part and fits the target; never from the main index, whose torch is
another build. If neither has it, its place is taken by files that hold only the known requirements of the release, so
that everything else can be locked: the package is then *incomplete*. An index whose URL is that of a wheel is fetched.
"""

from __future__ import annotations

import html
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.errors import FindingsError, NetworkError, UsageError
from cannery.lock.io.direct import fetch_direct
from cannery.lock.io.listing import direct_file
from cannery.lock.io.places import bound_places, extra_places, url_path
from cannery.lock.uv_input import UvIndex, exact_pin
from cannery.lock.wheel_tags import uv_platform, wheel_rank
from cannery.util.io.files import write_atomic
from cannery.util.io.hashes import local_sha256
from cannery.util.urls import without_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.catalog import Index
    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.listing import Listed
    from cannery.lock.io.places import Place
    from cannery.lock.lock import KnownRelease, LockRequest
    from cannery.util.io.pip_settings import PipSettings


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


class NoFileError(FindingsError):
    """An index that a package is bound to was reached, and has no file of it for the target.

    `askers` are who asks for it where the request itself does not, as far as that is known.
    """

    def __init__(self, name: str, pin: str | None, index: str, request: LockRequest) -> None:
        super().__init__(
            f"{name} {pin or ''}".rstrip() + f": index {index} has no file of it for Python {request.python} on "
            f"{request.arch} ({uv_platform(request.arch)})",
            where=f"profile {request.profile}",
        )
        self.name = name
        self.pin = pin
        self.askers: tuple[str, ...] = ()


class UnreachedError(NetworkError):
    """An index that a package is bound to was not reached, and nothing is known of the release."""


@dataclass(frozen=True)
class Binder:
    """Chooses where bound packages come from, by the answers of the places; files of its own go below `folder`."""

    request: LockRequest
    answers: Sequence[Answer]
    folder: Path
    settings: PipSettings
    cache: Path

    def source(self, name: str) -> Source:
        """Return where the bound package `name` comes from.

        Raises `NoFileError` when its index has no file of it for the target, `UnreachedError` when the index is not
        reached and nothing is known of the release; and what `fetch_direct` raises.
        """
        index = index_of(self.request)[name]
        pin = exact_pin(self.request, name)
        mine = [answer for answer in self.answers if answer.project == name]
        own = [answer for answer in mine if answer.place.index == index]
        for answer in mine:
            found = self._from(answer, name, pin, is_own=answer in own)
            if found is not None:
                return found
        if any(answer.reached for answer in own):
            raise NoFileError(name, pin, index, self.request)
        return self._stand_in(name, index, own)

    def _from(self, answer: Answer, name: str, pin: str | None, *, is_own: bool) -> Source | None:
        """The package from one place; an unpinned one comes from its own index only."""
        place = answer.place
        index = index_of(self.request)[name]
        is_direct = bool(direct_file(place))
        fitting = _fitting(answer, pin, self.request)
        if pin is None and not is_direct:
            return _source(name, index, answer) if is_own and answer.files else None
        if not fitting or (pin is None and not is_own):
            return None
        if is_direct:
            return self._listed(name, index, place, [self._fetched(file) for file in fitting])
        if place.folder is not None:
            return self._listed(name, index, place, [self._local(file) for file in fitting])
        return _source(name, index, answer)

    def _fetched(self, file: Listed) -> tuple[str, Path, str]:
        return (file.file, *fetch_direct(file, self.settings, self.cache))

    def _local(self, file: Listed) -> tuple[str, Path, str]:
        path = url_path(file.url)
        if not path.is_file():
            raise NetworkError(f"{file.place} lists {file.file}, which is not there")
        return file.file, path, file.sha256 or local_sha256(path, self.cache)

    def _listed(self, name: str, index: str, place: Place, files: Sequence[tuple[str, Path, str]]) -> Source:
        """An index page of our own for files on the disk, with hashes: uv would unpack a wheel to get one (10 s)."""
        links = "".join(
            f'<a href="{html.escape(path.as_uri())}#sha256={sha256}">{html.escape(file)}</a>\n'
            for file, path, sha256 in files
        )
        folder = self.folder / name
        write_atomic(folder / name / "index.html", f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")
        return Source(name, index, UvIndex(f"{index}-{name}", folder.as_uri(), explicit=True, dated=False), place)

    def _stand_in(self, name: str, index: str, own: Sequence[Answer]) -> Source:
        pin = exact_pin(self.request, name)
        known = self.request.stand_ins
        releases = [r for r in known if canonicalize_name(r.name) == name and _same(r.version, pin)]
        if not releases:
            places = "; ".join(str(answer) for answer in own)
            state = f"was not reached, and nothing is known of it: {places}" if own else "is a folder of yours"
            raise UnreachedError(
                f"{name} {pin or ''}".rstrip() + f" comes from index {index}, which {state}\n"
                f"    → {_way_out(name, pin, index if own else '')}"
            )
        for release in releases:
            _write_wheel(self.folder / name, release, pin or release.version)
        flat = UvIndex(f"{index}-{name}", (self.folder / name).as_uri(), flat=True, explicit=True, dated=False)
        return Source(name, index, flat, None)


def _way_out(name: str, pin: str | None, index: str) -> str:
    """Say what can be done about a release of an index that is not reached; "" is one without a URL."""
    first = f"lock on a host that reaches index {index}" if index else "name the folder with its wheel by --wheelhouse"
    text = f"{first}, or take a {name} whose `metadata` its component has"
    if pin is None or not Version(pin).local:
        return text
    public = Version(pin).public
    return f"{text}; the local part (+{Version(pin).local}) follows from the component: {name}=={public} is enough"


def _fitting(answer: Answer, pin: str | None, request: LockRequest) -> tuple[Listed, ...]:
    return tuple(
        file
        for file in answer.files
        if (pin is None or Version(file.version) == Version(pin))
        and wheel_rank(file.file, request.python, request.arch) is not None
    )


def _source(name: str, index: str, answer: Answer) -> Source:
    place = answer.place
    url = without_credentials(place.url)
    return Source(name, index, UvIndex(f"{index}-{name}", url, place.links, explicit=True, dated=answer.dated), place)


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
