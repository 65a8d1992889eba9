"""Where uv finds sources, and packages that are bound to an index.

A bound package comes from its index. If that index does not answer, the package comes from the host's find-links or
extra indexes, if they have the pinned version (with its local segment) for the target. It never comes from the main
index, which has another build of torch. If no place has it, uv gets wheels with only the known requirements of the
release, so that everything else can be locked. The package is then *incomplete*.

uv never sees the files of sources. Their requirements are known from images/components, and wheels of a release on the
host's indexes may be built for another device.
"""

from __future__ import annotations

import html
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.target import distance
from cannery.errors import FindingsError, NetworkError, UsageError
from cannery.lock.io.indexes import PROBE, places_of, sha256_of, url_path
from cannery.lock.lock import best_wheel, public_mirrors, uv_platform, wheel_rank
from cannery.lock.uv import ResolvedFile, UvIndex, exact_pin
from cannery.util.addresses import without_credentials
from cannery.util.io.files import write_atomic
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.addresses import Index
    from cannery.lock.io.indexes import Answer, Listed, Place
    from cannery.lock.io.resolve import Job
    from cannery.lock.request import KnownRelease, LockRequest
    from cannery.util.io.pip_settings import PipSettings


# The most files that a message names.
SHOWN = 4


@dataclass(frozen=True)
class Source:
    """Where uv finds a bound package. `place` is None if uv gets only its known requirements."""

    package: str
    index: str
    uv: UvIndex
    place: Place | None


def bound_questions(
    names: Sequence[str], request: LockRequest, indexes: Mapping[str, Index], settings: PipSettings
) -> tuple[tuple[Place, str], ...]:
    """Return the queries (place, project) that `Binder.source` needs for the bound packages `names`.

    Raises `UsageError` for an index that the catalog does not have.
    """
    bindings = dict(request.bindings)
    unknown = sorted({bindings[name] for name in names} - {*indexes})
    if unknown:
        raise UsageError(f"index {unknown[0]!r} is not in the catalog", where="images/indexes.yaml")
    return tuple((place, name) for name in names for place in places_of(bindings[name], indexes, settings))


class NoFileError(FindingsError):
    """The index of a bound package was reached, but has no file of it for the target.

    `askers` are the packages that require it, if they are known.
    """

    def __init__(self, name: str, pin: str | None, index: str, request: LockRequest, listed: Sequence[Listed]) -> None:
        near = sorted(listed, key=lambda file: (distance(pin, file.version) if pin else (), file.file))
        names = ", ".join(dict.fromkeys(file.file for file in near[:SHOWN]))
        super().__init__(
            f"{name} {pin or ''}".rstrip() + f": index {index} has no file of it for Python {request.python} on "
            f"{request.arch} ({uv_platform(request.arch)})" + (f"; it has {names}" if names else ""),
            where=f"profile {request.profile}",
        )
        self.name = name
        self.pin = pin
        self.askers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binder:
    """Decides where bound packages come from, by the answers of the places. Writes files below `folder`."""

    request: LockRequest
    indexes: Mapping[str, Index]
    answers: Sequence[Answer]
    folder: Path
    cache: Path

    def source(self, name: str) -> Source:
        """Return where the bound package `name` comes from.

        Raises `NoFileError` if its index has no file for the target, `NetworkError` if the index is not reached and
        the requirements of the release are not known.
        """
        request = self.request
        index, pin = dict(request.bindings)[name], exact_pin(request, name)
        mine = [answer for answer in self.answers if answer.project == name]
        own = [answer for answer in mine if answer.place.index == index]
        for answer in mine:
            files = [
                file
                for file in answer.files
                if (pin is None or Version(file.version) == Version(pin))
                and wheel_rank(file.file, request.python, request.arch) is not None
            ]
            # An unpinned package comes only from its own index, at any version.
            if (pin is None and answer in own and answer.files) or (pin is not None and files):
                place, is_local = answer.place, answer.place.folder is not None
                url = self._page(name, files or answer.files) if is_local else without_credentials(place.url)
                flat, dated = place.links and not is_local, answer.dated and not is_local
                return Source(name, index, UvIndex(f"{index}-{name}", url, flat, explicit=True, dated=dated), place)
        if any(answer.reached for answer in own):
            raise NoFileError(name, pin, index, request, [file for answer in own for file in answer.files])
        return self._stand_in(name, index, pin, own)

    def _page(self, name: str, files: Sequence[Listed]) -> str:
        """Write an index page for local files, with hashes: without one, uv unpacks the wheel (10 s)."""
        links = ""
        for file in files:
            if not url_path(file.url).is_file():
                raise NetworkError(f"{file.place} lists {file.file}, which is not there")
            sha256 = sha256_of(file, self.cache)
            links += f'<a href="{html.escape(file.url)}#sha256={sha256}">{html.escape(file.file)}</a>\n'
        folder = self.folder / name
        write_atomic(folder / name / "index.html", f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")
        return folder.as_uri()

    def _stand_in(self, name: str, index: str, pin: str | None, own: Sequence[Answer]) -> Source:
        """Write wheels with the known requirements, which are the same for every local segment of a release."""
        wanted = {Version(pin), Version(Version(pin).public)} if pin else set()
        known = [release for release in self.request.stand_ins if release.name == name]
        releases = [release for release in known if not pin or Version(release.version) in wanted]
        if not releases:
            state = "is a folder of yours"
            way = "put its wheel into a folder, and name the folder with --wheelhouse"
            if own:
                asked = "; ".join(map(str, own))
                state = f"was not reached, and the catalog does not have its requirements: {asked}"
                mirror = public_mirrors({index}, self.indexes)
                mirror = mirror or f'name a mirror of it: export CANNERY_MIRROR_INDEX="{index}=ADDRESS"'
                way = f"run the same command on a host that reaches index {index}, or {mirror}"
            what = f"{name} {pin or ''}".rstrip()
            raise NetworkError(f"{what} comes from index {index}, which {state}", hint=way)
        for release in releases:
            _write_wheel(self.folder / name, release, pin or release.version)
        flat = UvIndex(f"{index}-{name}", (self.folder / name).as_uri(), flat=True, explicit=True, dated=False)
        return Source(name, index, flat, None)


def known_sources(request: LockRequest, folder: Path) -> tuple[Source, ...]:
    """Return a `Source` for each source component: a wheel in `folder` with its requirements."""
    for release in request.sources:
        _write_wheel(folder, release, release.version)
    flat = UvIndex("sources", folder.as_uri(), flat=True, explicit=True, dated=False)
    return tuple(Source(release.name, flat.name, flat, None) for release in request.sources)


def _write_wheel(folder: Path, release: KnownRelease, version: str) -> None:
    """Write a wheel that has only metadata."""
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


def released_files(job: Job) -> dict[str, ResolvedFile]:
    """Return {normalised name: file} of every source of the request that is a release.

    The first place in the host's pip settings that has the file serves it. If none has it, raises `NetworkError` if
    one was not reached, else `FindingsError`.
    """
    wanted = [source for source in job.request.sources if source.file]
    places = places_of(DEFAULT_INDEX, job.indexes, job.settings)
    answers = job.asked.ask([(place, one.name) for one in wanted for place in places], job.settings, PROBE)
    return {one.name: _released(job, one, [a for a in answers if a.project == one.name]) for one in wanted}


def _released(job: Job, release: KnownRelease, answers: Sequence[Answer]) -> ResolvedFile:
    version, request = Version(release.version), job.request
    of_version = [[file for file in answer.files if Version(file.version) == version] for answer in answers]
    for files in of_version:
        found = best_wheel(files, request.python, request.arch)
        if release.file == "sdist":
            found = next((file for file in files if file.file.endswith(".tar.gz")), None)
        if found is not None:
            return ResolvedFile(found.file, found.url, sha256_of(found, job.cache), found.size)
    lost = [str(answer) for answer in answers if not answer.reached]
    what = f"{release.name} {release.version}"
    if lost:
        raise NetworkError(f"{what}: not reached: {'; '.join(lost)}", where=job.where)
    names = sorted(file.file for files in of_version for file in files)
    kind = "source distribution" if release.file == "sdist" else f"wheel for {uv_platform(job.request.arch)}"
    raise FindingsError(
        f"{what}: the host's indexes have no {kind} of it",
        where=job.where,
        hint=f"they have {', '.join(names[:SHOWN])}" if names else "they have no file of that release",
    )
