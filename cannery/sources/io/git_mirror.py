"""The user's own repositories in place of the network: read where they are, never written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import NetworkError
from cannery.sources.io.git_objects import why_not

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


# What a repository was called before its project moved: a copy on a disk may have that name.
OLD_NAMES = {"verl-project/verl": "volcengine/verl"}


@dataclass(frozen=True)
class Found:
    """A commit that is on this host: its repository, and who served it (`host/owner/name`).

    A mirror may lack content (`is_whole` false); in the cache that would be damage.
    """

    git_dir: Path
    commit: str
    repository: str
    is_whole: bool = True


def in_mirror(mirror: Path, what: str, commit: str, hosts: Mapping[str, str], env: Mapping[str, str]) -> Found:
    """Return `commit` in a local repository below `mirror`, which is only read.

    Looked at are `owner/name.git`, `owner/name` and `owner+name/repo`, bare or with a work tree, of every `owner/name`
    in `hosts`, also by its old name. Raises `NetworkError` that names them when none has it; of one that git cannot
    read, git's own reason.
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
                hint = "mend that repository, or put another copy there"
            looked.append(f"{place} ({reason or 'without the commit'})")
    raise NetworkError(
        f"{what}: commit {commit} is in no local repository: {', '.join(looked)}",
        where=f"GIT_MIRROR={mirror}",
        hint=f"{hint}, or leave GIT_MIRROR (--git-mirror) out to fetch it",
    )


def places(mirror: Path, repository: str) -> Iterator[tuple[str, Path | None]]:
    """Give where `owner/name` may be below `mirror`, each with its git directory; None where there is none."""
    names = [repository, OLD_NAMES.get(repository, "")]
    for place in [form for name in names if name for form in (f"{name}.git", name, f"{name.replace('/', '+')}/repo")]:
        yield place, next((path for path in (mirror / place, mirror / place / ".git") if is_git_dir(path)), None)


def is_git_dir(path: Path) -> bool:
    """Whether a folder is a git directory."""
    return (path / "HEAD").is_file() and (path / "objects").is_dir()
