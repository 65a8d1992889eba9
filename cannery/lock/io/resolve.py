"""Resolves a request into a lock with `uv pip compile`, for the target's Python and platform, on any host.

A lock should depend as little as possible on the host that makes it. So each place serves only certain packages:

- A bound package (torch → pytorch-cpu) comes from its index or the host's own files; see `cannery.lock.io.bound`.
- Everything else comes from the main index in the host's pip settings. Extra indexes and find-links only serve packages
  that the main index does not have, because uv uses the first index that has a name (`first-index`). pip would merge
  their versions, so a host with old copies on its disk would lock another set.
- The date bound applies to every index with upload times. uv ignores files without a time (folders, plain HTML), so
  extra places and bound indexes of that kind are used without the bound. A main index of that kind is an error.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from importlib.metadata import version as installed_version
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING

from cannery.catalog.target import package_name
from cannery.errors import CanneryError, FindingsError, NetworkError, UnableError, UsageError
from cannery.lock.io.bound import Binder, NoFileError, bound_questions, known_sources, released_files
from cannery.lock.io.indexes import PROBE, places_of
from cannery.lock.io.wheelhouse import remote_size
from cannery.lock.lock import PROFILE_VIA, Lock, LockedPackage, best_wheel, uv_platform
from cannery.lock.uv import (
    UNSATISFIABLE,
    UvIndex,
    direct_names,
    explain,
    is_of_network,
    os_error,
    parse_pylock,
    parse_via,
    project_text,
    settings_text,
)
from cannery.util.addresses import url_host, without_credentials
from cannery.util.io.files import unwritable, write_atomic
from cannery.util.io.http import HostSession
from cannery.util.io.locks import locked_if_free
from cannery.util.io.pip_settings import index_credentials, uv_environment
from cannery.util.io.process import CommandError, run
from cannery.util.trouble import State
from cannery.vocab import DEFAULT_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cannery.catalog.addresses import Index
    from cannery.lock.io.bound import Source
    from cannery.lock.io.indexes import Answer, Asked, Place
    from cannery.lock.request import LockRequest
    from cannery.lock.uv import Resolved, ResolvedFile
    from cannery.util.io.pip_settings import PipSettings

    # Resolves a request within the given seconds and returns {name: version}, or None if nothing works. Raises
    # `NetworkError` if an index or this host fails.
    Attempt = Callable[[LockRequest, float], Mapping[str, str] | None]

HINT = "see `pip config list` for where it is named"
# The time limit of a resolution in seconds. It usually takes a few seconds.
LONGEST = 600.0
# Constraints of builds while a similar set is tried. Otherwise uv installs torch with its CUDA libraries from the main
# index, only to read the requirements of an old sdist (vllm 0.1.3).
NOT_IN_TRIALS = ("torch<0",)


@dataclass(frozen=True)
class Job:
    """The inputs of a resolution: the request, the catalog's indexes by name, and the host's settings.

    `env` is the environment of the process, `cache` is Cannery's cache folder. The locks of one run may share `asked`,
    so that no index is queried twice.
    """

    request: LockRequest
    indexes: Mapping[str, Index]
    settings: PipSettings
    env: Mapping[str, str]
    cache: Path
    asked: Asked

    @property
    def where(self) -> str:
        """The request, for messages."""
        return f"profile {self.request.profile}, Python {self.request.python}, {self.request.arch}"


class UnsolvedError(FindingsError):
    """uv found no set of versions. `stderr` is its explanation, without secrets."""

    def __init__(self, stderr: str, job: Job) -> None:
        super().__init__(f"no set of versions works\n{explain(stderr, job.request.profile)}", where=job.where)
        self.stderr = stderr


class Resolver:
    """One resolution in `folder`, limited to `longest` seconds. `log` gets all output of uv.

    `for_builds` are constraints of what uv installs to build an sdist for its metadata.
    """

    def __init__(self, job: Job, folder: Path, longest: float = LONGEST, for_builds: Sequence[str] = ()) -> None:
        self.job = job
        self.request = job.request
        self.folder = folder
        self.longest = longest
        self.for_builds = for_builds
        self.log: list[str] = []
        # Set by `choose`: {name: (version, who requires it)}, the places that uv uses, and its environment.
        self.via: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.places: tuple[Place, ...] = ()
        self.env: dict[str, str] = {}

    def resolve(self) -> Lock:
        """Return the lock. Raises `UnsolvedError`, `NoFileError`, and the errors of the module's `resolve`."""
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
        """Let uv choose the versions (`via`). Repeat if its answer has bound packages that were not queried yet."""
        bindings = dict(self.request.bindings)
        direct = direct_names(self.request)
        names = sorted(direct & {*bindings})
        # uv ignores the index of an overridden package, such as a forced pin. Its index is then not explicit: it comes
        # before the shared ones, so the package still comes from it.
        free = {package_name(text) for text in self.request.overrides}
        while True:
            shared, sources = self._places(names)
            bound = {s.package: replace(s.uv, explicit=s.uv.explicit and s.package not in free) for s in sources}
            project = project_text(self.request, bound, [name for name in names if name not in direct])
            settings = settings_text(self.request, bound, [index for index, _place in shared], self.for_builds)
            write_atomic(self.folder / "pyproject.toml", project)
            write_atomic(self.folder / "uv.toml", settings)
            self.env = uv_environment(self.job.settings, self.job.env)
            pairs = (*shared, *((s.uv, s.place) for s in sources if s.place))
            for index, place in pairs:
                self.env |= index_credentials(index.name, place.url)
            self.places = tuple(place for _index, place in pairs)
            self.via = parse_via(self.run("--no-header", "--annotation-style", "line"))
            late = sorted({*self.via} & {*bindings} - {*names})
            if not late:
                return sources
            names = sorted({*names, *late})

    def _places(self, names: Sequence[str]) -> tuple[list[tuple[UvIndex, Place]], list[Source]]:
        """Query all indexes at the same time, and return the shared indexes and the sources of bound packages.

        Raises `NetworkError` if an index is not reached, and `NoFileError` if one has no file for the target.
        """
        request, settings = self.request, self.job.settings
        # Two packages of the request, and pip, which every mirror has.
        usual = (*sorted({package_name(text) for text in request.requirements} - {*names, "pip"})[:2], "pip")
        places = places_of(DEFAULT_INDEX, self.job.indexes, settings)
        questions = [(place, project) for place in places for project in usual]
        bound = bound_questions(sorted(dict(request.bindings)), request, self.job.indexes, settings)
        answers = self.job.asked.ask([*questions, *bound], settings, PROBE)
        mine = [answers[number * len(usual) : (number + 1) * len(usual)] for number in range(len(places))]
        binder = Binder(request, self.job.indexes, answers[len(questions) :], self.folder / "releases", self.job.cache)
        sources: list[Source] = []
        lost: list[NetworkError] = []
        absent: list[NoFileError] = []
        for name in names:
            try:
                sources.append(binder.source(name))
            except NetworkError as error:
                lost.append(error)
            except NoFileError as error:
                error.askers = self.via.get(name, ("", ()))[1]
                absent.append(error)
        silent = [next((one for one in of_place if not one.reached), None) for of_place in mine]
        dead = [*(f"not reached: {answer}" for answer in silent if answer), *(error.what for error in lost)]
        if dead:
            hints = dict.fromkeys([*([HINT] if any(silent) else []), *(error.hint for error in lost if error.hint)])
            raise NetworkError("\n  ".join(dead), where=self.job.where, hint="; ".join(hints))
        _check_main(mine[0], request.exclude_newer)
        if absent:
            raise absent[0]
        shared = [(_shared(number, place, mine[number]), place) for number, place in enumerate(places)]
        return shared, [*sources, *known_sources(request, self.folder / "sources")]

    def run(self, *options: str) -> str:
        """Run uv with further `options`, and return its output.

        Raises `UnsolvedError` if no set works, `NetworkError` if an index fails or uv takes too long, and `UnableError`
        if this host cannot run it (disk, permissions, memory) or uv fails in another way.
        """
        import uv  # noqa: PLC0415 - only where uv runs

        request = self.request
        args = (
            *(uv.find_uv_bin(), "pip", "compile", "pyproject.toml", "--config-file", "uv.toml"),
            *("--python", sys.executable, "--python-version", request.python),
            *("--python-platform", uv_platform(request.arch), "--cache-dir", str(self.job.cache / "uv")),
            *("--no-progress", *options),
        )
        try:
            done = run(args, env=self.env, cwd=self.folder, timeout=self.longest, check=False)
        except CommandError as error:
            raise NetworkError(f"the resolver has no answer after {self.longest:g} s", where=self.job.where) from error
        texts = (shlex.join(args), *((self.folder / name).read_text() for name in ("pyproject.toml", "uv.toml")))
        self.log += [*texts, done.stdout, done.stderr, f"status {done.returncode}"]
        if done.returncode != 0:
            raise self._error(done.returncode, self.job.settings.redact(done.stderr))
        return done.stdout

    def _error(self, status: int, stderr: str) -> CanneryError:
        """Return the error of a failed run. `stderr` has no secrets; a negative `status` is a signal."""
        text = explain(stderr, self.job.request.profile)
        if status < 0:
            hint = "make room in memory, then run the same command again" if -status == SIGKILL else ""
            return UnableError(f"the resolver was ended by signal {-status}", where=self.job.where, hint=hint)
        if UNSATISFIABLE in stderr and not is_of_network(stderr):
            return UnsolvedError(stderr, self.job)
        if number := os_error(stderr):
            error = unwritable(OSError(number, ""), self.job.cache / "uv")
            error.what += f"\n{text}"
            return error
        if not is_of_network(stderr):
            hint = "set CANNERY_CACHE to a folder without a `:` in its path" if ":" in str(self.job.cache) else ""
            return UnableError(f"the resolver failed with status {status}\n{text}", where=self.job.where, hint=hint)
        hosts = {url_host(place.url).rpartition("@")[2]: place for place in self.places}
        place = next((place for host, place in hosts.items() if host and host in stderr), None)
        proxy = HostSession(self.job.settings).proxy_words(place.url) if place else ""
        through = f" through {proxy}" if proxy else ""
        hint = "wait a while and try again" if "429 Too Many Requests" in stderr else ""
        return NetworkError(f"{place or 'an index'} failed{through}\n{text}", where=self.job.where, hint=hint)

    def _locked(self, sources: Mapping[str, Source]) -> Iterator[LockedPackage]:
        """Yield the packages of the lock: for each, the file to install and who requires it.

        uv is run again for the files, from its cache. Sources from git are not packages of the lock.
        """
        self.run("--format", "pylock.toml", "--output-file", "pylock.toml")
        try:
            packages = parse_pylock((self.folder / "pylock.toml").read_text())
        except (OSError, ValueError) as error:
            raise FindingsError(f"the resolver's answer cannot be used: {error}", where=self.job.where) from error
        if {name: version for name, (version, _asked) in self.via.items()} != {p.name: p.version for p in packages}:
            raise NetworkError("the indexes changed while they were read", where=self.job.where, hint="lock again")
        from_git = {source.name for source in self.request.sources if not source.file}
        released = released_files(self.job)
        direct = direct_names(self.request)
        session = HostSession(self.job.settings)
        for package in packages:
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
    """Return the file to install: the best wheel for the target, or the sdist if no wheel fits."""
    file = best_wheel(package.wheels, job.request.python, job.request.arch) or package.sdist
    if file is None:
        raise FindingsError(
            f"{package.name} {package.version}: no wheel for {uv_platform(job.request.arch)}, and no sdist",
            where=job.where,
            hint=f"it has {', '.join(sorted(wheel.file for wheel in package.wheels)[:6])}",
        )
    return file


def _check_main(answers: Sequence[Answer], exclude_newer: str) -> None:
    """Raise `NetworkError` if the main index was reached but cannot be used for a lock."""
    place = answers[0].place
    if not any(answer.state is State.OK for answer in answers):
        asked = ", ".join(answer.project for answer in answers)
        raise NetworkError(
            f"{answers[-1]}: it has none of {asked}, so it is not an index of Python packages", hint=HINT
        )
    if not any(answer.dated for answer in answers):
        raise NetworkError(
            f"{place} gives no upload times, so the date bound {exclude_newer} would hide all of its files",
            hint="name another mirror as pip's index-url for locking; building from a lock works with this one",
        )


def _shared(number: int, place: Place, answers: Sequence[Answer]) -> UvIndex:
    """Return a place of the host as an index for uv. Number 0 is the main index."""
    # A plain HTML index or folder has no upload times.
    dated = any(answer.dated for answer in answers)
    # A server with plain http is usually local, and its content may change at any time, so it is not cached.
    kept = place.url.startswith("https:") and not place.links
    name = f"extra-{number}" if number else DEFAULT_INDEX
    return UvIndex(name, without_credentials(place.url), place.links, dated=dated, kept=kept)


def resolve(
    job: Job, log: Path, explain_to_user: Callable[[UnsolvedError | NoFileError, Job, Attempt], CanneryError]
) -> Lock:
    """Return the lock for `job.request`. The same request with the same indexes gives the same lock.

    `log` is the file for the output of uv. `explain_to_user` turns the error of a resolution into the error that the
    user sees; its last argument resolves another request within the given seconds.

    Raises `FindingsError` if no set of versions works, `NetworkError` with every index that fails, `UsageError` for an
    index that is not in the catalog, and the errors of `Resolver.run`. If a bound index is not reached, the lock has
    its packages as incomplete.
    """
    home = job.cache / "locks"  # `clean locks` removes the remains of killed runs
    job.cache.mkdir(parents=True, exist_ok=True)  # before `home`, so that an error names the cache
    home.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="resolve-", dir=home) as name:
        resolver = Resolver(job, Path(name))
        output = resolver.log

        def attempt(request: LockRequest, longest: float) -> Mapping[str, str] | None:
            with tempfile.TemporaryDirectory(prefix="try-", dir=name) as folder:
                other = Resolver(replace(job, request=request), Path(folder), longest, NOT_IN_TRIALS)
                try:
                    other.choose()
                except UnableError as error:
                    raise NetworkError(error.what, where=error.where) from error
                except (FindingsError, UsageError):
                    return None
                finally:
                    output.extend(["", f"another set: {', '.join(request.requirements)}", *other.log])
            return {name: version for name, (version, _asked) in other.via.items()}

        try:
            lock = resolver.resolve()
        except (UnsolvedError, NoFileError) as error:
            found = explain_to_user(error, job, attempt)
            _add_log(found, log, output)
            raise found from error
        except CanneryError as error:
            _add_log(error, log, output)
            raise
        finally:
            _remove_remains(job.cache / "uv")
            if output:
                write_atomic(log, job.settings.redact("\n".join(output)) + "\n")
    return lock


def _remove_remains(cache: Path) -> None:
    """Remove what a stopped uv was unpacking into its cache. If another uv uses the cache, a later run does it.

    Every uv holds a shared lock on `.lock` while it runs.
    """
    lock = locked_if_free(cache / ".lock")
    if lock is not None:
        for path in (*cache.glob(".tmp*"), *cache.glob("*/.tmp*")):
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _add_log(error: CanneryError, log: Path, output: Sequence[str]) -> None:
    if output:
        error.log = str(log)
