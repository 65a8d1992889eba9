"""The files of sources that are releases on the host's indexes: what a lock holds of them.

uv never sees these files: what the release asks for is known beforehand (images/components), and its wheels may be
another device's build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.errors import FindingsError, NetworkError
from cannery.lock.io.places import default_place, extra_places, url_path
from cannery.lock.io.uv import PROBE
from cannery.lock.uv_output import ResolvedFile
from cannery.lock.wheel_tags import best_wheel, uv_platform
from cannery.util.io.hashes import local_sha256

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.listing import Listed
    from cannery.lock.io.uv import Job
    from cannery.lock.lock import KnownRelease

# Files that a message names.
SHOWN = 4


def released_files(job: Job) -> dict[str, ResolvedFile]:
    """Return {normalised name: file} of every source of the request that is a release.

    The first place of the host's pip settings that has the wanted file serves it. Raises `NetworkError` when none has
    it and one was not reached, `FindingsError` when all were reached.
    """
    wanted = [source for source in job.request.sources if source.file]
    places = (default_place(job.settings), *extra_places(job.settings))
    answers = job.asked.ask([(place, one.name) for one in wanted for place in places], job.settings, PROBE)
    size = len(places)
    return {
        one.name: _file(job, one, answers[number * size : (number + 1) * size]) for number, one in enumerate(wanted)
    }


def _file(job: Job, release: KnownRelease, answers: Sequence[Answer]) -> ResolvedFile:
    version = Version(release.version)
    of_version = [[file for file in answer.files if Version(file.version) == version] for answer in answers]
    for files in of_version:
        found = _chosen(job, release, files)
        if found is not None:
            return _hashed(job, found)
    lost = [str(answer) for answer in answers if not answer.reached]
    what = f"{release.name} {release.version}"
    if lost:
        raise NetworkError(f"{what}: not reached: {'; '.join(lost)}", where=job.where)
    there = sorted(file.file for files in of_version for file in files)
    kind = "source distribution" if release.file == "sdist" else f"wheel for {uv_platform(job.request.arch)}"
    raise FindingsError(
        f"{what}: the host's indexes have no {kind} of it",
        where=job.where,
        hint=f"they have {', '.join(there[:SHOWN])}" if there else "they have no file of that release",
    )


def _chosen(job: Job, release: KnownRelease, files: Sequence[Listed]) -> Listed | None:
    by_name = {file.file: file for file in files}
    if release.file == "sdist":
        return next((by_name[name] for name in sorted(by_name) if name.endswith(".tar.gz")), None)
    best = best_wheel(by_name, job.request.python, job.request.arch)
    return by_name[best] if best else None


def _hashed(job: Job, file: Listed) -> ResolvedFile:
    sha256 = file.sha256
    if not sha256 and file.url.startswith("file:"):
        sha256 = local_sha256(url_path(file.url), job.cache)
    return ResolvedFile(file.file, file.url, sha256, file.size)
