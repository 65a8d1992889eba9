"""Ask the index that serves a package whether a release of it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from cannery.lock.files import installable
from cannery.lock.io.bound import index_of
from cannery.lock.io.places import bound_places, default_place, extra_places
from cannery.lock.io.uv import PROBE
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable

    from cannery.lock.io.indexes import Answer
    from cannery.lock.io.uv import Job


def releases_at(job: Job) -> Callable[[str, str], bool]:
    """Return a function: whether a release (name, version) has a file for the target up to the date bound.

    Its index is asked when the name first comes; one that is not reached may have anything.
    """
    known: dict[str, Answer] = {}
    sources = {source.name for source in job.request.sources}
    dates = dict(job.request.package_dates)

    def has(name: str, version: str) -> bool:
        if name in sources:
            return True
        answer = known.get(name) or known.setdefault(name, _ask(name, job))
        until = dates.get(name, job.request.exclude_newer)
        wanted = SpecifierSet(f"=={version}", prereleases=True)  # without a local part: every build of it
        return not answer.reached or any(
            wanted.contains(file.version)
            and installable(file.file, job.request.python, job.request.arch)
            and file.uploaded <= until
            for file in answer.files
        )

    return has


def _ask(name: str, job: Job) -> Answer:
    """Return what the first index that knows a package has of it: that one serves it, whatever others have."""
    bound = index_of(job.request).get(name, DEFAULT_INDEX)
    main = (default_place(job.settings), *extra_places(job.settings))
    places = main if bound == DEFAULT_INDEX else bound_places(bound, job.indexes)
    answers = job.asked.ask([(place, name) for place in places], job.settings, PROBE)
    return next((a for a in answers if a.files), next((a for a in answers if a.reached), answers[0]))
