"""Where sources come from and are kept: a tar each, with a note beside the tar of a commit, which later runs reuse."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.sources.plan import Missing, Why
from cannery.util.io.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cannery.catalog.addresses import Host
    from cannery.sources.plan import SourceRequest


# Who served a tree of the user's own.
LOCAL = "local"


@dataclass(frozen=True)
class SourceStore:
    """Where sources come from on this host, and the cache where they are kept.

    `hosts` is images/hosts.yaml. `mirror` is a folder of local repositories, which is used instead of the network;
    `local` are the user's own folders by the name of their source. `env` is the environment of git; `say` prints a
    progress line.
    """

    cache: Path
    env: Mapping[str, str]
    say: Callable[[str], None]
    hosts: Mapping[str, Host]
    mirror: Path | None
    local: Mapping[str, Path]


@dataclass(frozen=True)
class SourceFile:
    """A source that is on this host.

    `tree` is a digest of its content that no time or owner changes. `repository` is who served it (`host/owner/name`,
    `mirror/owner/name`), or `local`; `commit` is a local tree's HEAD, None without one, and `dirty` says that the tree
    differs from it. `missing` is printed for the user.
    """

    name: str
    tar: Path
    sha256: str
    tree: str
    commit: str | None
    repository: str
    dirty: bool
    missing: tuple[Missing, ...]


def note_text(file: SourceFile) -> str:
    """Return the note that stays beside the tar of a commit."""
    note = {
        "sha256": file.sha256,
        "tree": file.tree,
        "repository": file.repository,
        "missing": [[one.path, one.why.name] for one in file.missing],
    }
    return json.dumps(note, indent=1) + "\n"


def noted(request: SourceRequest, target: Path, note: Path) -> SourceFile | None:
    """Return the tar of an earlier run, unless it is damaged or was made from a repository that lacked content."""
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        missing = tuple(Missing(path, Why[why]) for path, why in known["missing"])
        file = SourceFile(
            name=request.name,
            tar=target,
            sha256=known["sha256"],
            tree=known["tree"],
            commit=request.commit,
            repository=known["repository"],
            dirty=False,
            missing=missing,
        )
        is_same = sha256_file(target) == file.sha256
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return file if is_same and all(one.why is not Why.BLOB for one in missing) else None
