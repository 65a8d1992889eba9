"""Git trees in an image, read from their .git files: no git has to be there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cannery.against.seen import Seen

HEAD = re.compile(r"(?P<tree>.*)/\.git/HEAD")
GITDIR = re.compile(r"(?P<tree>.*)/\.git")
COMMIT = re.compile(r"[0-9a-f]{40}")
# A remote's last two parts, whatever stands before them: user names and passwords do not get further than here.
REPOSITORY = re.compile(r"^\s*url\s*=\s*.*?([^/:@\s]+/[^/:@\s]+?)(?:\.git)?/?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class GitTree:
    """A working tree: its path, its HEAD ("" where that cannot be read), `owner/name` of its remote ("" of none)."""

    path: str
    commit: str
    repository: str

    @property
    def name(self) -> str:
        """What the tree is called: its remote's name, else its folder's."""
        return (self.repository or self.path).rpartition("/")[2].lower()


def git_trees(seen: Seen) -> tuple[GitTree, ...]:
    """Return the git trees of an image, by path."""
    found = {}
    for path, text in seen.texts.items():
        if match := HEAD.fullmatch(path):
            found[match["tree"]] = f"{match['tree']}/.git"
        elif (match := GITDIR.fullmatch(path)) and text.startswith("gitdir:"):  # a submodule, or a second working tree
            named = text.partition(":")[2].strip()
            found[match["tree"]] = seen.real(named if named.startswith("/") else f"{match['tree']}/{named}")
    return tuple(
        GitTree(tree, _head(seen, folder), _repository(seen, folder)) for tree, folder in sorted(found.items())
    )


def _head(seen: Seen, folder: str) -> str:
    text = seen.texts.get(f"{folder}/HEAD", "").strip()
    if not text.startswith("ref:"):
        return text if COMMIT.fullmatch(text) else ""
    name = text.removeprefix("ref:").strip()
    loose = seen.texts.get(f"{folder}/{name}", "").strip()
    if COMMIT.fullmatch(loose):
        return loose
    packed = (line.split(" ", 1) for line in seen.texts.get(f"{folder}/packed-refs", "").splitlines())
    return next((words[0] for words in packed if len(words) == 2 and words[1] == name), "")


def _repository(seen: Seen, folder: str) -> str:
    match = REPOSITORY.search(seen.texts.get(f"{folder}/config", ""))
    return match[1] if match else ""
