"""Commits on this host: one repository for each in the cache, or the user's own mirror instead of the network.

`<cache>/git/<owner>/<name>/<commit>.git` is moved into place when the commit is complete, and is not fetched again. Its
one ref, `refs/cannery/<host>`, names the host that served it. A mirror is read in place and never written.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.errors import NetworkError, UnableError, UsageError
from cannery.sources.io.git import GitReadError, has, read, ref_below, talk, why_not
from cannery.util.addresses import redactor
from cannery.util.io.locks import held
from cannery.util.trouble import OF_HOST, Reason, State, reason
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cannery.catalog.addresses import Host

# Seconds without output after which a fetch is ended; git prints progress while it fetches.
SILENCE = 20.0
SERVED = "refs/cannery/"
# git must not collect garbage in the background, since the repository is moved. All is on the disk before the move,
# since a host may lose power.
SETTINGS = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.fsync=all")
FETCH = ("fetch", "--depth=1", "--progress", "--no-tags", "--no-recurse-submodules")
WAYS_OUT = (
    "GIT_MIRROR=dir (--git-mirror dir) takes local bare repositories, "
    "SRC_<name>=dir (--src <name>=dir) a local tree instead"
)
# Earlier names of repositories: a mirror may still have them.
OLD_NAMES = {"verl-project/verl": "volcengine/verl"}


@dataclass(frozen=True)
class Found:
    """A commit on this host: its repository, and where it came from (`host/owner/name`, `mirror/owner/name`).

    `is_whole` is false in a mirror, where content may be missing; in the cache that would be damage.
    """

    git_dir: Path
    commit: str
    repository: str
    is_whole: bool = True


@dataclass(frozen=True)
class GitCache:
    """What all fetches of a run share; `slow` are hosts that failed."""

    cache: Path
    hosts: Mapping[str, Host]
    env: Mapping[str, str]
    mirror: Path | None
    say: Callable[[str], None]
    stop: threading.Event
    silence: float = SILENCE
    slow: set[str] = field(default_factory=set)

    def obtain(self, what: str, commit: str, hosts: Mapping[str, str]) -> Found:
        """Return `commit` of one of `hosts` ({host: `owner/name`}); fetch it if the cache does not have it.

        `what` names it in messages. Raises `NetworkError` with the reason of every host, `UsageError` for a host
        without a URL, `UnableError` for a cache that cannot be written, and `StoppedError`.
        """
        if self.mirror is not None:
            return in_mirror(self.mirror, what, commit, hosts, self.env)
        unknown = [host for host in hosts if host not in self.hosts]
        if unknown or not hosts:
            named = f"host {unknown[0]!r} has no URL" if unknown else "no host is named"
            raise UsageError(f"{what}: {named}", where="images/hosts.yaml", hint=did_you_mean("", self.hosts))
        for repository in dict.fromkeys(hosts.values()):
            found = self._cached(repository, commit)
            if found:
                return found
        tried: list[str] = []
        # A host that failed for another source is tried last, since each time-out costs time.
        for host in sorted(hosts, key=lambda host: host in self.slow):
            got = self._fetch_from(host, hosts[host], what, commit)
            if isinstance(got, Found):
                return got
            if got.state in OF_HOST:
                self.slow.add(host)
            tried.append(f"{host} ({hosts[host]}): {got}")
        raise NetworkError(f"{what}: commit {commit} cannot be fetched from {'; '.join(tried)}", hint=WAYS_OUT)

    def _cached(self, repository: str, commit: str) -> Found | None:
        # Version 0.1.0 kept all commits in one repository.
        old = (self.cache / "git" / f"{repository}.git", f"{SERVED}at/{commit}/")
        for git_dir, refs in ((self._git_dir(repository, commit), SERVED), old):
            host = ref_below(git_dir, refs, self.env).removeprefix(refs) if git_dir.is_dir() else ""
            if host and has(git_dir, f"{commit}^{{tree}}", self.env):
                return Found(git_dir, commit, f"{host}/{repository}")
        return None

    def _git_dir(self, repository: str, commit: str) -> Path:
        return self.cache / "git" / repository / f"{commit}.git"

    def _fetch_from(self, host: str, repository: str, what: str, commit: str) -> Found | Reason:
        git_dir = self._git_dir(repository, commit)
        part = git_dir.with_suffix(".part")
        lock = self.cache / "git" / ".locks" / f"{repository.replace('/', '+')}+{commit}.lock"
        with self.held(lock, f"{what}: {repository}"):
            found = self._cached(repository, commit)
            if found:
                return found  # another run fetched it meanwhile
            try:
                for left in (git_dir, part):  # damaged, or of a run that was killed
                    if left.exists():
                        shutil.rmtree(left)
                part.mkdir(parents=True)
                read(("init", "--quiet", "--bare", "--template=", part), self.env)
            except (OSError, GitReadError) as error:
                raise UnableError(f"the git cache cannot be written: {error}", where=str(git_dir)) from error
            self.say(f"{what}: fetching {repository} {commit[:12]} from {host}")
            why = self._fetch(part, host, repository, f"+{commit}:{SERVED}{host}")
            if why and why.state is State.DISK:
                raise UnableError(f"the git cache cannot be written: {why.detail}", where=str(git_dir))
            if why:
                shutil.rmtree(part, ignore_errors=True)
                return why
            part.replace(git_dir)
            return Found(git_dir, commit, f"{host}/{repository}")

    def held(self, path: Path, what: str) -> AbstractContextManager[None]:
        """Hold a lock file of the cache; report once that `what` waits for another run."""
        return held(path, lambda: self.say(f"{what}: waiting for another run that fetches it"), self.stop)

    def _fetch(self, git_dir: Path, host: str, repository: str, ref: str) -> Reason | None:
        known, why = self.hosts[host], None
        for url in (*known.mirrors, known.url):
            if why is not None:
                self.say(f"{repository}: a mirror of {host} does not have it ({why}): trying another place")
            arguments = (f"--git-dir={git_dir}", *SETTINGS, *FETCH, "--", url.replace("{repository}", repository), ref)
            done, text = talk(arguments, self.env, git_dir, stop=self.stop, silence=self.silence)
            if done:
                return None
            why = reason(redactor()(text))
        return why


def in_mirror(mirror: Path, what: str, commit: str, hosts: Mapping[str, str], env: Mapping[str, str]) -> Found:
    """Return `commit` in a local repository below `mirror`.

    For every `owner/name` in `hosts`, and its old name, it tries `owner/name.git`, `owner/name` and `owner+name/repo`,
    bare or with a work tree. Raises `NetworkError` if none has the commit; it names them all, with git's reason for
    one that cannot be read.
    """
    looked: list[str] = []
    hint = "put a repository that has it there"
    for repository in dict.fromkeys(hosts.values()):
        for place, git_dir in places(mirror, repository):
            if git_dir is None:
                looked.append(f"{place} (not there)")
                continue
            reason = why_not(git_dir, f"{commit}^{{commit}}", env)
            if reason is None:
                return Found(git_dir, commit, f"mirror/{repository}", is_whole=False)
            if reason:
                reason = f"git cannot read it: {reason.replace(f'{mirror}/', '')}"
                hint = "repair that repository, or put another copy there"
            looked.append(f"{place} ({reason or 'without the commit'})")
    raise NetworkError(
        f"{what}: commit {commit} is in no local repository: {', '.join(looked)}",
        where=f"GIT_MIRROR={mirror}",
        hint=f"{hint}, or leave GIT_MIRROR (--git-mirror) out to fetch it",
    )


def places(mirror: Path, repository: str) -> Iterator[tuple[str, Path | None]]:
    """Yield the possible places of `owner/name` below `mirror`, each with its git directory or None."""
    names = [repository, OLD_NAMES.get(repository, "")]
    for place in [form for name in names if name for form in (f"{name}.git", name, f"{name.replace('/', '+')}/repo")]:
        ways = (mirror / place, mirror / place / ".git")
        yield place, next((p for p in ways if (p / "HEAD").is_file() and (p / "objects").is_dir()), None)
