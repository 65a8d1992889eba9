"""Resolve a request into a lock with `uv pip compile`, for the target's Python and platform, from any host.

Which place serves what, so that a lock depends as little as possible on the host that makes it:

- A bound package (torch → pytorch-cpu) comes from its index or the host's own files; see `edge.bound`.
- Everything else comes from the main index of the host's pip settings. Extra indexes and find-links serve only packages
  that the main index does not have at all: uv takes the first index in the list that knows a name (`first-index`), and
  they stand behind it. pip would merge their versions instead, and a host with stale copies on its disk would then lock
  another set.
- The date bound holds for every index that tells upload times. Files without a time (folders, plain HTML) would not
  exist for uv, so extra places and bound indexes of that kind are taken without the bound; a main index of that kind
  is an error.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.core.chains import denied
from cannery.core.errors import CanneryError, FindingsError, NetworkError
from cannery.core.lock import DEFAULT_INDEX, PROFILE_VIA, Lock, LockedPackage
from cannery.core.uv_input import UvIndex, direct_names, project_text, settings_text
from cannery.core.uv_output import NETWORK, UNSATISFIABLE, explain, parse_pylock, parse_via
from cannery.core.wheel_tags import best_wheel, uv_platform
from cannery.edge.bound import bound_questions, bound_source, index_of, known_sources
from cannery.edge.files import write_atomic
from cannery.edge.index_checks import check_shared, remote_size, usual_projects
from cannery.edge.indexes import ask_all
from cannery.edge.pipconf import index_credentials, uv_environment, without_credentials
from cannery.edge.places import default_place, extra_places
from cannery.edge.process import run
from cannery.edge.session import HostSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.core.catalog import Index
    from cannery.core.lock import LockRequest
    from cannery.core.uv_output import Resolved, ResolvedFile
    from cannery.edge.bound import Source
    from cannery.edge.pipconf import PipSettings
    from cannery.edge.places import Place
    from cannery.edge.process import Result

# Seconds in which every index has answered, or counts as not reached.
PROBE = 5.0
# A resolution takes seconds; one that takes this long (seconds) hangs.
LONGEST = 600.0


class Resolver:
    """One resolution: where its files and settings are. `resolve` is the function to call."""

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of `resolve`
        self,
        request: LockRequest,
        indexes: Mapping[str, Index],
        settings: PipSettings,
        env: Mapping[str, str],
        cache: Path,
        folder: Path,
    ) -> None:
        self.request = request
        self.indexes = indexes
        self.settings = settings
        self.env = env
        self.cache = cache
        self.folder = folder
        self.log: list[str] = []

    def resolve(self) -> Lock:
        """Resolve, again while a package comes in that is bound and was not known to be."""
        bindings = index_of(self.request)
        direct = direct_names(self.request)
        names = sorted(direct & {*bindings})
        while True:
            shared, sources = self._places(names)
            resolved = self._compile(shared, sources, more=[name for name in names if name not in direct])
            late = sorted({package.name for package, _via in resolved} & {*bindings} - {*names})
            if not late:
                return self._lock(resolved, {source.package: source for source in sources}, direct)
            names = sorted({*names, *late})

    def _places(self, names: Sequence[str]) -> tuple[list[tuple[UvIndex, Place]], list[Source]]:
        """Ask every index that matters, at once, and say which serves what; raise `NetworkError` for a dead one."""
        usual = usual_projects(self.request, names)
        places = (default_place(self.settings), *extra_places(self.settings))
        questions = [(place, project) for place in places for project in usual]
        bound = bound_questions(names, self.request, self.indexes, self.settings)
        answers = ask_all([*questions, *bound], self.settings, PROBE)
        shared: list[tuple[UvIndex, Place]] = []
        for number, place in enumerate(places):
            mine = answers[number * len(usual) : (number + 1) * len(usual)]
            check_shared(mine, self.request.exclude_newer, main=number == 0)
            # A plain HTML index or folder has no times; of an index that lacks the usual projects one cannot tell.
            dated = any(answer.dated for answer in mine)
            name = f"extra-{number}" if number else DEFAULT_INDEX
            shared.append((UvIndex(name, without_credentials(place.url), place.links, dated=dated), place))
        sources = [
            bound_source(name, self.request, answers[len(questions) :], self.folder / "releases" / name)
            for name in names
        ]
        return shared, [*sources, *known_sources(self.request, self.folder / "sources")]

    def _compile(
        self, shared: Sequence[tuple[UvIndex, Place]], sources: Sequence[Source], more: Sequence[str]
    ) -> list[tuple[Resolved, tuple[str, ...]]]:
        """Run uv for who asked what, then (all cached) for the files; return both by package."""
        # uv forgets a package's index when the package is overridden, as a forced pin is; an index that is not explicit
        # stands before the shared ones, so the package still comes from it.
        free = {canonicalize_name(Requirement(text).name) for text in self.request.overrides}
        bound = {s.package: replace(s.uv, explicit=s.uv.explicit and s.package not in free) for s in sources}
        write_atomic(self.folder / "pyproject.toml", project_text(self.request, bound, more))
        write_atomic(self.folder / "uv.toml", settings_text(self.request, bound, [index for index, _place in shared]))
        env = uv_environment(self.settings, self.env)
        for index, place in (*shared, *((s.uv, s.place) for s in sources if s.place)):
            env |= index_credentials(index.name, place.url)
        places = [*(place for _index, place in shared), *(s.place for s in sources if s.place)]
        via = parse_via(self._uv(env, places, "--no-header", "--annotation-style", "line").stdout)
        files = ("--format", "pylock.toml", "--output-file", "pylock.toml")
        # Offline, since some indexes want every page asked for again; but one may also forbid to keep its pages.
        if self._run(env, (*files, "--offline")).returncode != 0:
            self._uv(env, places, *files)
        try:
            packages = parse_pylock((self.folder / "pylock.toml").read_text())
        except (OSError, ValueError) as error:
            raise FindingsError(f"the resolver's answer cannot be used: {error}", where=self._where) from error
        if {name: version for name, (version, _asked) in via.items()} != {p.name: p.version for p in packages}:
            raise NetworkError("the indexes changed while they were read", where=self._where, hint="lock again")
        return [(package, via[package.name][1]) for package in packages]

    def _uv(self, env: Mapping[str, str], places: Sequence[Place], *options: str) -> Result:
        done = self._run(env, options)
        if done.returncode != 0:
            raise self._failure(self.settings.redact(done.stderr), places)
        return done

    def _run(self, env: Mapping[str, str], options: Sequence[str]) -> Result:
        import uv  # noqa: PLC0415 - only where uv runs

        request = self.request
        args = (
            *(uv.find_uv_bin(), "pip", "compile", "pyproject.toml", "--config-file", "uv.toml"),
            *("--python", sys.executable, "--python-version", request.python),
            *("--python-platform", uv_platform(request.arch), "--cache-dir", str(self.cache / "uv")),
            *("--no-progress", *options),
        )
        done = run(args, env=env, cwd=self.folder, timeout=LONGEST, check=False)
        texts = (shlex.join(args), (self.folder / "pyproject.toml").read_text(), (self.folder / "uv.toml").read_text())
        self.log += [*texts, done.stdout, done.stderr, f"status {done.returncode}"]
        return done

    @property
    def _where(self) -> str:
        return f"profile {self.request.profile}, Python {self.request.python}, {self.request.arch}"

    def _failure(self, stderr: str, places: Sequence[Place]) -> CanneryError:
        text = explain(stderr, self.request.profile)
        if UNSATISFIABLE not in stderr and NETWORK.search(stderr):
            hosts = {urlsplit(place.url).hostname: place for place in places}
            named = [place for host, place in hosts.items() if host and host in stderr]
            return NetworkError(f"{named[0] if named else 'an index'} failed\n{text}", where=self._where)
        return FindingsError(f"no set of versions works\n{text}", where=self._where)

    def _lock(
        self,
        resolved: Sequence[tuple[Resolved, tuple[str, ...]]],
        sources: Mapping[str, Source],
        direct: frozenset[str],
    ) -> Lock:
        session = HostSession(self.settings)
        packages = []
        from_git = {source.name for source in self.request.sources}
        for package, asked in resolved:
            if package.name in from_git:
                continue
            source = sources.get(package.name)
            via = asked if package.name in direct else tuple(name for name in asked if name != PROFILE_VIA)
            index = source.index if source else DEFAULT_INDEX
            if source and source.place is None:
                packages.append(LockedPackage(package.name, package.version, "", "", 0, index, via))
                continue
            file = self._file(package)
            size = file.size or remote_size(file.url, session, self.settings.timeout)
            packages.append(LockedPackage(package.name, package.version, file.file, file.sha256, size, index, via))
        request = self.request
        resolver = f"uv {installed_version('uv')}"
        return Lock(
            request.profile,
            request.python,
            request.arch,
            request.digest,
            request.exclude_newer,
            resolver,
            tuple(packages),
        )

    def _file(self, package: Resolved) -> ResolvedFile:
        """The one file that will be installed: the best wheel for the target, the sdist only when none fits."""
        wheels = {wheel.file: wheel for wheel in package.wheels}
        best = best_wheel(wheels, self.request.python, self.request.arch)
        file = wheels[best] if best else package.sdist
        if file is None:
            raise FindingsError(
                f"{package.name} {package.version}: no wheel for {uv_platform(self.request.arch)}, and no sdist",
                where=self._where,
                hint=f"it has {', '.join(sorted(wheels)[:6])}",
            )
        if not file.sha256:
            raise NetworkError(f"{file.file}: its index tells no sha256, so it cannot be locked", where=self._where)
        return file


def resolve(  # noqa: PLR0913 - what a resolution depends on
    request: LockRequest,
    indexes: Mapping[str, Index],
    settings: PipSettings,
    *,
    env: Mapping[str, str],
    cache: Path,
    log: Path,
    deny: Sequence[str] = (),
) -> Lock:
    """Return the lock that answers `request`; the same request on the same indexes gives the same lock.

    `indexes` is the catalog's name → index, `env` the process's environment, `cache` Cannery's cache folder, `log` the
    file that gets uv's whole output, `deny` are globs of packages that must not come in (`nvidia-*`).

    Raises `FindingsError` when no set of versions works or a denied package comes in (naming who asked), `NetworkError`
    naming an index that fails, `UsageError` for an index that the catalog does not have. An index that is bound and not
    reached makes its packages incomplete instead; the lock says so.
    """
    cache = cache.absolute()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="resolve-", dir=cache) as name:
        resolver = Resolver(request, indexes, settings, env, cache, Path(name))
        try:
            lock = resolver.resolve()
        except CanneryError as error:
            if resolver.log:
                error.hint = "; ".join(part for part in (error.hint, f"the resolver's full output: {log}") if part)
            raise
        finally:
            if resolver.log:
                write_atomic(log, settings.redact("\n".join(resolver.log)) + "\n")
    lines = denied(lock.packages, deny)
    if lines:
        more = [f"and {len(lines) - 10} more"] if len(lines) > 10 else []
        raise FindingsError(
            "\n  ".join(["packages came in that do not belong in an Ascend image:", *lines[:10], *more]),
            where=f"profile {request.profile}, Python {request.python}, {request.arch}",
            hint="bind the first of each chain to an index with another build of it, or exclude the last",
        )
    return lock
