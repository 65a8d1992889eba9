"""One call of `uv pip compile`: its folder, its environment, its log."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from signal import SIGKILL
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError, UnableError
from cannery.lock.files import uv_platform
from cannery.lock.uv import UNSATISFIABLE, explain, is_of_network, os_error, project_text, settings_text
from cannery.util.addresses import url_host
from cannery.util.io.files import unwritable, write_atomic
from cannery.util.io.http import HostSession
from cannery.util.io.pip_settings import index_credentials, uv_environment
from cannery.util.io.process import CommandError, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cannery.catalog.addresses import Index
    from cannery.errors import CanneryError
    from cannery.lock.io.bound import Source
    from cannery.lock.io.indexes import Asked, Place
    from cannery.lock.lock import LockRequest
    from cannery.lock.uv import UvIndex
    from cannery.util.io.pip_settings import PipSettings
    from cannery.util.io.process import Result

# A resolution takes seconds; one that takes this long (seconds) hangs.
LONGEST = 600.0
# Seconds in which every index has answered, or counts as not reached: with Python's and pip's start, five in all.
PROBE = 4.0


@dataclass(frozen=True)
class Job:
    """What a resolution depends on: the request, the catalog's indexes by name, and the host.

    `env` is the environment of the process, `cache` Cannery's cache folder. `asked` may be shared by the locks of one
    run: what indexes have answered is not asked again.
    """

    request: LockRequest
    indexes: Mapping[str, Index]
    settings: PipSettings
    env: Mapping[str, str]
    cache: Path
    asked: Asked

    @property
    def where(self) -> str:
        """What is resolved, in words."""
        return f"profile {self.request.profile}, Python {self.request.python}, {self.request.arch}"


class UnsolvedError(FindingsError):
    """uv finds no set of versions; `stderr` is its explanation, without secrets."""

    def __init__(self, stderr: str, job: Job) -> None:
        super().__init__(f"no set of versions works\n{explain(stderr, job.request.profile)}", where=job.where)
        self.stderr = stderr


@dataclass
class UvRun:
    """A folder with the project and settings files of one set of places, in which uv runs. `log` gets all its output.

    `longest` is in seconds.
    """

    job: Job
    folder: Path
    log: list[str] = field(default_factory=list)
    longest: float = LONGEST
    places: tuple[Place, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def prepare(
        self,
        shared: Sequence[tuple[UvIndex, Place]],
        sources: Sequence[Source],
        bound: Mapping[str, UvIndex],
        more: Sequence[str],
    ) -> None:
        """Write uv's files; `bound` is the index of each bound package, `more` are names beside the requirements."""
        request = self.job.request
        write_atomic(self.folder / "pyproject.toml", project_text(request, bound, more))
        write_atomic(self.folder / "uv.toml", settings_text(request, bound, [index for index, _place in shared]))
        self.env = uv_environment(self.job.settings, self.job.env)
        pairs = (*shared, *((s.uv, s.place) for s in sources if s.place))
        for index, place in pairs:
            self.env |= index_credentials(index.name, place.url)
        self.places = tuple(place for _index, place in pairs)

    def must(self, *options: str) -> Result:
        """Run uv.

        Raises `UnsolvedError` when no set works, `NetworkError` naming an index that fails, or when there is no end of
        it, `UnableError` when this host cannot (disk, rights, memory), or uv fails in another way.
        """
        try:
            done = self.run(*options)
        except CommandError as error:
            raise NetworkError(f"the resolver has no answer after {self.longest:g} s", where=self.job.where) from error
        if done.returncode == 0:
            return done
        raise self._error(done.returncode, self.job.settings.redact(done.stderr))

    def _error(self, status: int, stderr: str) -> CanneryError:
        """Return the error of a failed run; `stderr` is without secrets, `status` of a signal is negative."""
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
        if is_of_network(stderr):
            return self._network_error(text, stderr)
        return UnableError(f"the resolver failed with status {status}\n{text}", where=self.job.where)

    def _network_error(self, text: str, stderr: str) -> NetworkError:
        hosts = {url_host(place.url).rpartition("@")[2]: place for place in self.places}
        place = next((place for host, place in hosts.items() if host and host in stderr), None)
        proxy = HostSession(self.job.settings).proxy_words(place.url) if place else ""
        through = f" through {proxy}" if proxy else ""
        hint = "wait a while and try again" if "429 Too Many Requests" in stderr else ""
        return NetworkError(f"{place or 'an index'} failed{through}\n{text}", where=self.job.where, hint=hint)

    def succeeds(self, *options: str) -> bool:
        """Run uv; return whether it succeeds."""
        try:
            return self.run(*options).returncode == 0
        except CommandError:
            return False

    def run(self, *options: str) -> Result:
        """Run uv with `options` beside the usual ones, whatever comes of it."""
        import uv  # noqa: PLC0415 - only where uv runs

        request = self.job.request
        args = (
            *(uv.find_uv_bin(), "pip", "compile", "pyproject.toml", "--config-file", "uv.toml"),
            *("--python", sys.executable, "--python-version", request.python),
            *("--python-platform", uv_platform(request.arch), "--cache-dir", str(self.job.cache / "uv")),
            *("--no-progress", *options),
        )
        done = run(args, env=self.env, cwd=self.folder, timeout=self.longest, check=False)
        texts = (shlex.join(args), *((self.folder / name).read_text() for name in ("pyproject.toml", "uv.toml")))
        self.log += [*texts, done.stdout, done.stderr, f"status {done.returncode}"]
        return done
