"""Commits on the host: a cache of bare repositories, one for each `owner/name`, or the user's own mirror in its place.

`<cache>/git/<owner>/<name>.git` keeps a ref for each commit that came whole, `refs/cannery/at/<commit>/<host>`. git
writes it last, so a commit that has one is there with all it needs, and no network is asked for it again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cannery.errors import NetworkError, UnableError, UsageError
from cannery.sources.io.git import GitReadError, read, talk
from cannery.sources.io.git_mirror import Found, in_mirror
from cannery.sources.io.git_objects import has, opens, ref_below
from cannery.util.addresses import redactor
from cannery.util.io.locks import held
from cannery.util.trouble import OF_HOST, Reason, State, reason
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cannery.catalog.addresses import Host

# Seconds in which a host must let something be heard; git shows progress all the time while it talks.
SILENCE = 20.0
AT = "refs/cannery/at"
# A ref is all that keeps a commit here: git must not tidy up by itself, nor write what differs from run to run.
# What it has written is on the disk before it has a name: a host may lose power.
SETTINGS = (
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.writeCommitGraph=false"),
    *("-c", "core.fsync=all"),
)
FETCH = ("fetch", "--depth=1", "--progress", "--no-tags", "--no-recurse-submodules")
# What a killed git leaves; the next one would stumble over the locks.
LEFT = ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/[0-9a-f][0-9a-f]/tmp_obj_*")
WAYS_OUT = (
    "GIT_MIRROR=dir (--git-mirror dir) takes local bare repositories, "
    "SRC_<name>=dir (--src <name>=dir) a local tree in its place"
)


@dataclass(frozen=True)
class GitCache:
    """What all fetches of a run share. `log` takes git's own words, free of secrets; `slow` the hosts that failed.

    `dropped` are repositories that were damaged and had to be fetched again.
    """

    cache: Path
    hosts: Mapping[str, Host]
    env: Mapping[str, str]
    mirror: Path | None
    say: Callable[[str], None]
    log: Callable[[str], None]
    stop: threading.Event
    silence: float = SILENCE
    slow: set[str] = field(default_factory=set)
    dropped: set[Path] = field(default_factory=set)

    def obtain(self, what: str, commit: str, hosts: Mapping[str, str]) -> Found:
        """Return `commit` of one of `hosts` ({host: `owner/name`}), fetched where it is not there yet.

        `what` names it to the user. Raises `NetworkError` that names every place that was tried with its reason,
        `UsageError` for a host without a URL, `UnableError` for a cache that cannot be written, `StoppedError`.
        """
        if self.mirror is not None:
            return in_mirror(self.mirror, what, commit, hosts, self.env)
        unknown = [host for host in hosts if host not in self.hosts]
        if unknown or not hosts:
            named = f"host {unknown[0]!r} has no URL" if unknown else "no host is named"
            raise UsageError(f"{what}: {named}", where="images/hosts.yaml", hint=did_you_mean("", self.hosts))
        for repository in dict.fromkeys(hosts.values()):
            found = self._there(repository, commit)
            if found:
                return found
        tried: list[str] = []
        # A host that just failed for another source is asked last: its time-out would be waited for each time.
        for host in sorted(hosts, key=lambda host: host in self.slow):
            got = self._from(host, hosts[host], what, commit)
            if isinstance(got, Found):
                return got
            if got.state in OF_HOST:
                self.slow.add(host)
            tried.append(f"{host} ({hosts[host]}): {got}")
        raise NetworkError(f"{what}: commit {commit} cannot be fetched from {'; '.join(tried)}", hint=WAYS_OUT)

    def _git_dir(self, repository: str) -> Path:
        return cached(self.cache, repository)

    def _there(self, repository: str, commit: str) -> Found | None:
        git_dir = self._git_dir(repository)
        if not (git_dir / "HEAD").is_file():
            return None
        host = ref_below(git_dir, f"{AT}/{commit}/", self.env).rpartition("/")[2]
        if not host or not has(git_dir, f"{commit}^{{tree}}", self.env):
            return None
        return Found(git_dir, commit, f"{host}/{repository}")

    def _from(self, host: str, repository: str, what: str, commit: str) -> Found | Reason:
        git_dir = self._git_dir(repository)
        name = f"{what}: {repository}"
        with self._held(repository, name):
            found = self._there(repository, commit)
            if found:
                return found  # another run fetched it meanwhile
            try:
                self._prepare(git_dir, commit)
            except (OSError, GitReadError) as error:
                raise UnableError(f"the git cache cannot be written: {error}", where=str(git_dir)) from error
            self.say(f"{name} {commit[:12]} is fetched from {host}")
            why = self._fetch(git_dir, host, repository, f"+{commit}:{AT}/{commit}/{host}")
            if why and why.state is State.DISK:
                raise UnableError(f"the git cache cannot be written: {why.detail}", where=str(git_dir))
            return why or Found(git_dir, commit, f"{host}/{repository}")

    def _held(self, repository: str, what: str) -> AbstractContextManager[None]:
        """Hold a repository of the cache."""
        return self.held(self.cache / "git" / ".locks" / f"{repository.replace('/', '+')}.lock", what)

    def held(self, path: Path, what: str) -> AbstractContextManager[None]:
        """Hold a lock file of the cache; report once that `what` waits for another run."""
        return held(path, lambda: self.say(f"{what}: waiting for another run that fetches it"), self.stop)

    def drop(self, git_dir: Path) -> None:
        """Remove a repository of the cache that turned out to be damaged, once a run: others may read the new one.

        Raises `UnableError` where it cannot be removed.
        """
        repository = str(git_dir.relative_to(self.cache / "git")).removesuffix(".git")
        with self._held(repository, repository):
            if git_dir in self.dropped:
                return
            self.dropped.add(git_dir)
            try:
                shutil.rmtree(git_dir)
            except FileNotFoundError:
                return  # another run has met the same damage
            except OSError as error:
                raise UnableError(f"the git cache cannot be written: {error}", where=str(git_dir)) from error

    def _prepare(self, git_dir: Path, commit: str) -> None:
        """Make the repository where it is not there; clear what a killed or damaged one left."""
        if git_dir.exists() and (not opens(git_dir, self.env) or self._has_ref(git_dir, commit)):
            shutil.rmtree(git_dir)  # half made, or damaged: the ref is there and the commit is not
        for pattern in LEFT:
            for path in git_dir.glob(pattern):
                path.unlink(missing_ok=True)
        git_dir.parent.mkdir(parents=True, exist_ok=True)
        read(("init", "--quiet", "--bare", "--template=", git_dir), self.env)

    def _has_ref(self, git_dir: Path, commit: str) -> bool:
        """Whether a commit has a ref, also one that a lost power left empty: git does not list that, nor write it."""
        files = (git_dir / AT / commit).glob("*")
        return any(file.suffix != ".lock" for file in files) or bool(ref_below(git_dir, f"{AT}/{commit}/", self.env))

    def _fetch(self, git_dir: Path, host: str, repository: str, ref: str) -> Reason | None:
        known, why = self.hosts[host], None
        for url in (*known.mirrors, known.url):
            if why is not None:
                self.say(f"{repository}: a mirror of {host} does not have it ({why}): another place is asked")
            why = self._fetch_from(git_dir, url.replace("{repository}", repository), ref)
            if why is None:
                break
        return why

    def _fetch_from(self, git_dir: Path, url: str, ref: str) -> Reason | None:
        arguments = (f"--git-dir={git_dir}", *SETTINGS, *FETCH, "--", url, ref)
        done, text = talk(arguments, self.env, git_dir, stop=self.stop, silence=self.silence)
        text = redactor()(text)
        self.log(f"git fetch --depth=1 {redactor()(url)} {ref}\n{text}")
        return None if done else reason(text)


def cached(cache: Path, repository: str) -> Path:
    """Return where the cache keeps `owner/name`."""
    return cache / "git" / f"{repository}.git"
