"""Resolve a request into a lock with `uv pip compile`, for the target's Python and platform, from any host.

Which place serves what, so that a lock depends as little as possible on the host that makes it:

- A bound package (torch → pytorch-cpu) comes from its index or the host's own files; see `cannery.lock.io.bound`.
- Everything else comes from the main index of the host's pip settings. Extra indexes and find-links serve only packages
  that the main index does not have at all: uv takes the first index in the list that knows a name (`first-index`), and
  they come behind it. pip would merge their versions instead, and a host with stale copies on its disk would then lock
  another set.
- The date bound holds for every index that gives upload times. Files without a time (folders, plain HTML) would not
  exist for uv, so extra places and bound indexes of that kind are taken without the bound; a main index of that kind
  is an error.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.catalog.versions import package_name
from cannery.errors import CanneryError, FindingsError, NetworkError, UnableError
from cannery.lock.files import best_wheel, public_mirrors, uv_platform
from cannery.lock.io.bound import (
    Binder,
    NoFileError,
    bound_questions,
    index_of,
    known_sources,
    released_files,
)
from cannery.lock.io.download import remote_size
from cannery.lock.io.indexes import places_of
from cannery.lock.io.uv import LONGEST, PROBE, UnsolvedError, UvRun
from cannery.lock.lock import PROFILE_VIA, Lock, LockedPackage
from cannery.lock.uv import UvIndex, direct_names, parse_pylock, parse_via
from cannery.util.addresses import without_credentials
from cannery.util.io.files import write_atomic
from cannery.util.io.http import HostSession
from cannery.util.trouble import State
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.lock.io.bound import Source
    from cannery.lock.io.indexes import Answer, Place
    from cannery.lock.io.uv import Job
    from cannery.lock.lock import LockRequest
    from cannery.lock.uv import Resolved, ResolvedFile

    # Resolves a request within so many seconds: name → version, None where nothing works; raises `NetworkError`.
    Attempt = Callable[[LockRequest, float], Mapping[str, str] | None]
    Explain = Callable[[UnsolvedError | NoFileError, Job, Attempt], CanneryError]

HINT = "see `pip config list` for where it is named"


class Resolver:
    """One resolution in a folder of its own. `resolve` is the function to call."""

    def __init__(self, job: Job, folder: Path, longest: float = LONGEST) -> None:
        self.job = job
        self.request = job.request
        self.uv = UvRun(job, folder, longest=longest)
        self.via: dict[str, tuple[str, tuple[str, ...]]] = {}

    def resolve(self) -> Lock:
        """Return the lock. Raises `UnsolvedError`, `NoFileError` and what the module's `resolve` raises."""
        sources = {source.package: source for source in self.choose()}
        packages = self._locked(sources)
        request = self.request
        return Lock(
            profile=request.profile,
            python=request.python,
            arch=request.arch,
            inputs=request.digest,
            exclude_newer=request.exclude_newer,
            resolver=f"uv {installed_version('uv')}",
            packages=tuple(packages),
        )

    def choose(self) -> list[Source]:
        """Let uv choose versions (`via`), again while a package comes in that is bound and was not known to be."""
        bindings = index_of(self.request)
        direct = direct_names(self.request)
        names = sorted(direct & {*bindings})
        while True:
            shared, sources = self._places(names)
            # uv forgets a package's index when the package is overridden, as a forced pin is; an index that is not
            # explicit comes before the shared ones, so the package still comes from it.
            free = {package_name(text) for text in self.request.overrides}
            bound = {s.package: replace(s.uv, explicit=s.uv.explicit and s.package not in free) for s in sources}
            self.uv.prepare(shared, sources, bound, [name for name in names if name not in direct])
            self.via = parse_via(self.uv.must("--no-header", "--annotation-style", "line").stdout)
            late = sorted({*self.via} & {*bindings} - {*names})
            if not late:
                return sources
            names = sorted({*names, *late})

    def _places(self, names: Sequence[str]) -> tuple[list[tuple[UvIndex, Place]], list[Source]]:
        """Ask every index that matters, at once, and return which serves what; raise `NetworkError` for dead ones."""
        request, settings = self.request, self.job.settings
        # Some that the request wants of a place, and pip, which every mirror of packages has.
        usual = (*sorted({package_name(text) for text in request.requirements} - {*names, "pip"})[:2], "pip")
        places = places_of(DEFAULT_INDEX, self.job.indexes, settings)
        questions = [(place, project) for place in places for project in usual]
        bound = bound_questions(sorted(index_of(request)), request, self.job.indexes, settings)
        answers = self.job.asked.ask([*questions, *bound], settings, PROBE)
        mine = [answers[number * len(usual) : (number + 1) * len(usual)] for number in range(len(places))]
        sources, lost, absent = self._bound(names, answers[len(questions) :])
        dead = [*(f"not reached: {text}" for answer in mine if (text := _unreached(answer))), *lost]
        if dead:
            pip = any(not answer.reached for answers in mine for answer in answers)
            mirrors = public_mirrors({*index_of(request).values()}, self.job.indexes) if lost else ""
            raise NetworkError("\n  ".join(dead), where=self.job.where, hint=HINT if pip else mirrors)
        _check_main(mine[0], request.exclude_newer)
        if absent:
            raise absent[0]
        shared = [(_shared(number, place, mine[number]), place) for number, place in enumerate(places)]
        return shared, [*sources, *known_sources(request, self.uv.folder / "sources")]

    def _bound(
        self, names: Sequence[str], answers: Sequence[Answer]
    ) -> tuple[list[Source], list[str], list[NoFileError]]:
        """Where each bound package comes from; what was not reached, and what is not there: all of it at once."""
        binder = Binder(self.request, answers, self.uv.folder / "releases", self.job.cache)
        sources: list[Source] = []
        lost: list[str] = []
        absent: list[NoFileError] = []
        for name in names:
            try:
                sources.append(binder.source(name))
            except NetworkError as error:
                lost.append(error.what)
            except NoFileError as error:
                error.askers = self.via.get(name, ("", ()))[1]
                absent.append(error)
        return sources, lost, absent

    def _files(self) -> list[Resolved]:
        """Run uv again, with all in its cache, for the files of what it chose."""
        files = ("--format", "pylock.toml", "--output-file", "pylock.toml")
        # Offline, since some indexes want every page asked for again; but one may also forbid to keep its pages.
        if not self.uv.succeeds(*files, "--offline"):
            self.uv.must(*files)
        try:
            packages = parse_pylock((self.uv.folder / "pylock.toml").read_text())
        except (OSError, ValueError) as error:
            raise FindingsError(f"the resolver's answer cannot be used: {error}", where=self.job.where) from error
        if {name: version for name, (version, _asked) in self.via.items()} != {p.name: p.version for p in packages}:
            raise NetworkError("the indexes changed while they were read", where=self.job.where, hint="lock again")
        return [*packages]

    def _locked(self, sources: Mapping[str, Source]) -> Iterator[LockedPackage]:
        """Give the package of the lock for each that uv chose: the one file that will be installed, and who asked.

        Sources that come from git are no packages of the lock.
        """
        from_git = {source.name for source in self.request.sources if not source.file}
        released = released_files(self.job)
        direct = direct_names(self.request)
        session = HostSession(self.job.settings)
        for package in self._files():
            if package.name in from_git:
                continue
            asked = self.via[package.name][1]
            via = asked if package.name in direct else tuple(name for name in asked if name != PROFILE_VIA)
            source = None if package.name in released else sources.get(package.name)
            index = source.index if source else DEFAULT_INDEX
            if source and source.place is None:
                yield LockedPackage(package.name, package.version, "", "", 0, index, via)
                continue
            file = released.get(package.name) or _chosen_file(package, self.job)
            if not file.sha256:
                raise NetworkError(
                    f"{file.file}: its index gives no sha256, so it cannot be locked", where=self.job.where
                )
            size = file.size or remote_size(file.url, session, self.job.settings.timeout)
            yield LockedPackage(package.name, package.version, file.file, file.sha256, size, index, via)


def _chosen_file(package: Resolved, job: Job) -> ResolvedFile:
    """The one file that will be installed: the best wheel for the target, the sdist only when none fits."""
    file = best_wheel(package.wheels, job.request.python, job.request.arch) or package.sdist
    if file is None:
        raise FindingsError(
            f"{package.name} {package.version}: no wheel for {uv_platform(job.request.arch)}, and no sdist",
            where=job.where,
            hint=f"it has {', '.join(sorted(wheel.file for wheel in package.wheels)[:6])}",
        )
    return file


def _unreached(answers: Sequence[Answer]) -> str:
    """Return what came of asking a place that did not answer; "" for one that did."""
    return next((str(answer) for answer in answers if not answer.reached), "")


def _check_main(answers: Sequence[Answer], exclude_newer: str) -> None:
    """Raise `NetworkError` when the main index, which was reached, cannot be locked from."""
    place = answers[0].place
    if not any(answer.state is State.OK for answer in answers):
        asked = ", ".join(answer.project for answer in answers)
        raise NetworkError(f"{answers[-1]}: it has none of {asked}, so it is no index of Python packages", hint=HINT)
    if not any(answer.dated for answer in answers):
        raise NetworkError(
            f"{place} gives no upload times, so the date bound {exclude_newer} would hide all that it has",
            hint="name another mirror as pip's index-url for locking; building from a lock works with this one",
        )


def _shared(number: int, place: Place, answers: Sequence[Answer]) -> UvIndex:
    """The host's place as uv's index; the first one is the main index."""
    # A plain HTML index or folder has no times; an index without the usual projects may have times or not.
    dated = any(answer.dated for answer in answers)
    # Plain http is a server of one's own: near, and written to at any time.
    kept = place.url.startswith("https:") and not place.links
    name = f"extra-{number}" if number else DEFAULT_INDEX
    return UvIndex(name, without_credentials(place.url), place.links, dated=dated, kept=kept)


def resolve(job: Job, log: Path, explain: Explain) -> Lock:
    """Return the lock that answers `job.request`; the same request on the same indexes gives the same lock.

    `log` is the file for uv's whole output. `explain` makes the error that a user sees of one that a resolution ends
    with; what it is given last resolves another request within so many seconds.

    Raises `FindingsError` when no set of versions works, `NetworkError` naming every index that fails, `UsageError` for
    an index that the catalog does not have, what `UvRun.must` raises.
    An index that is bound and not reached makes its packages incomplete instead, which the lock records.
    """
    home = job.cache / "locks"  # `clean locks` removes what a killed run leaves there
    job.cache.mkdir(parents=True, exist_ok=True)  # first, so that an error names it
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="resolve-", dir=home) as name:
        resolver = Resolver(job, Path(name))
        output = resolver.uv.log
        try:
            lock = resolver.resolve()
        except (UnsolvedError, NoFileError) as error:
            found = explain(error, job, lambda *asks: _attempt(job, Path(name), output, *asks))
            _add_log(found, log, output)
            raise found from error
        except CanneryError as error:
            _add_log(error, log, output)
            raise
        finally:
            if output:
                write_atomic(log, job.settings.redact("\n".join(output)) + "\n")
    return lock


def _attempt(
    job: Job, folder: Path, output: list[str], request: LockRequest, longest: float
) -> Mapping[str, str] | None:
    """Return name → version of what uv chooses for another request in `longest` seconds; None where nothing works.

    Raises `NetworkError` when an index or this host fails.
    """
    with tempfile.TemporaryDirectory(prefix="try-", dir=folder) as name:
        resolver = Resolver(replace(job, request=request), Path(name), longest)
        try:
            resolver.choose()
        except NetworkError:
            raise
        except UnableError as error:
            raise NetworkError(error.what, where=error.where) from error
        except CanneryError:
            return None
        finally:
            output += ["", f"another set: {', '.join(request.requirements)}", *resolver.uv.log]
    return {name: version for name, (version, _asked) in resolver.via.items()}


def _add_log(error: CanneryError, log: Path, output: Sequence[str]) -> None:
    if output:
        error.log = str(log)
