"""One call of `uv pip compile`: its folder, its environment, its log."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cannery.core.errors import FindingsError, NetworkError
from cannery.core.uv_input import project_text, settings_text
from cannery.core.uv_output import NETWORK, UNSATISFIABLE, explain
from cannery.core.wheel_tags import uv_platform
from cannery.edge.files import write_atomic
from cannery.edge.pipconf import index_credentials, uv_environment
from cannery.edge.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cannery.core.catalog import Index
    from cannery.core.lock import LockRequest
    from cannery.core.uv_input import UvIndex
    from cannery.edge.bound import Source
    from cannery.edge.indexes import Asked
    from cannery.edge.pipconf import PipSettings
    from cannery.edge.places import Place
    from cannery.edge.process import Result

# A resolution takes seconds; one that takes this long (seconds) hangs.
LONGEST = 600.0
# Seconds in which every index has answered, or counts as not reached: with Python's and pip's start, five in all.
PROBE = 4.0


@dataclass(frozen=True)
class Job:
    """What a resolution depends on: the request, the catalog's indexes, and the host.

    `cache` is Cannery's cache folder, `asked` what indexes have said in this run.
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
    """A folder with the project and settings files of one set of places, in which uv runs. `log` gets all it says.

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
        """Run uv. Raises `UnsolvedError` when no set works, `NetworkError` naming an index that fails."""
        done = self.run(*options)
        if done.returncode == 0:
            return done
        stderr = self.job.settings.redact(done.stderr)
        if UNSATISFIABLE not in stderr and NETWORK.search(stderr):
            text = explain(stderr, self.job.request.profile)
            hosts = {urlsplit(place.url).hostname: place for place in self.places}
            named = [place for host, place in hosts.items() if host and host in stderr]
            raise NetworkError(f"{named[0] if named else 'an index'} failed\n{text}", where=self.job.where)
        raise UnsolvedError(stderr, self.job)

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
