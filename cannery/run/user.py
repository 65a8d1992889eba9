"""The user that a container runs as, where it is another one than the image's (case U01)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.errors import UsageError
from cannery.host.facts import uid_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.catalog import ImageUser

# Every distribution has them in /etc/passwd: root and nobody.
NAMED = frozenset({0, 65534})
REPORT = "vllm-project/vllm-ascend issue 9490"
# The home of a user who cannot write the image's: every image has it, and every user can write it.
ANY_HOME = "/tmp"  # noqa: S108 - in a container of one user


@dataclass(frozen=True)
class RunAs:
    """A user and a group by number; `name` is what docker's --user takes."""

    name: str
    uid: int
    gid: int


def parse_run_as(text: str, user: ImageUser | None) -> RunAs:
    """Read `UID[:GID]` for an image of `user` (None: root's). Without a group it is the one that docker takes.

    Raises `UsageError` for names: which number one has, only the image knows, and a cluster needs the number.
    """
    match = re.fullmatch(r"([0-9]+)(?::([0-9]+))?", text)
    uid, gid = (uid_of(match[1]), uid_of(match[2] or "0")) if match else (None, None)
    if match is None or uid is None or gid is None:
        raise UsageError(f"--user: {text!r} is no user by number", hint='UID or UID:GID, as "$(id -u):$(id -g)"')
    if match[2] is None and user is not None and uid == user.uid:
        gid = user.gid
    return RunAs(text, uid, gid)


def home_env(run_as: RunAs | None, user: ImageUser | None) -> dict[str, str]:
    """Return HOME for one who cannot write at the home of an image of `user`, else nothing.

    The home that an image's user has is that user's and group 0's; in root's image another one has none, or / for it.
    """
    if run_as is None or run_as.uid == 0 or (user is not None and (run_as.uid == user.uid or run_as.gid == 0)):
        return {}
    return {"HOME": ANY_HOME}


def run_as_notes(run_as: RunAs | None, user: ImageUser | None, cards: int) -> Iterator[str]:
    """Give a note on each thing that such a user is missing in an image of `user`, with so many cards."""
    if run_as is None or run_as.uid == 0:
        return
    if user is None:
        what = f"uid {run_as.uid} has no home and no place for caches there (`user` in its profile)"
        yield f"the image is root's: {what}; HOME is {ANY_HOME}, unless -e sets another"
    elif home_env(run_as, user):
        yield f"{run_as.name} cannot write {user.home}: HOME is {ANY_HOME}, unless -e sets another"
    if cards > 1 and run_as.uid not in NAMED | ({user.uid} if user else set()):
        yield f"uid {run_as.uid} has no name in the image: HCCL between several cards fails for such a user ({REPORT})"
