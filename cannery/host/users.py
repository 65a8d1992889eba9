"""Users of a host, by name or number: who is to use the NPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass

LAST_UID = 2**32 - 2


@dataclass(frozen=True)
class User:
    """Somebody who is to use the NPUs. One who is a number alone, without a line in /etc/passwd, is not named."""

    name: str
    uid: int
    groups: frozenset[int]
    is_named: bool = True


def user_in(passwd: str, group: str, name: str) -> User | None:
    """Return the user of a passwd and a group file, by name or by number.

    A number that is not in the first is a user all the same; a name that is not in it is None.
    """
    rows = re.findall(r"^([^:\n]+):[^:\n]*:([0-9]{1,18}):([0-9]{1,18}):", passwd, re.MULTILINE)
    number = uid_of(name)
    row = next((row for row in rows if row[0] == name), None)
    row = row or next((row for row in rows if number is not None and int(row[1]) == number), None)
    if row is None:
        return nameless(number)
    groups = re.findall(r"^[^:\n]+:[^:\n]*:([0-9]{1,18}):(.*)$", group, re.MULTILINE)
    others = {int(gid) for gid, members in groups if row[0] in members.strip().split(",")}
    return User(row[0], int(row[1]), frozenset({int(row[2]), *others}))


def uid_of(text: str) -> int | None:
    """Return the number of a user who is named by it, None for a name and for what no system counts to."""
    return int(text) if re.fullmatch(r"[0-9]{1,10}", text) and int(text) <= LAST_UID else None


def nameless(uid: int | None) -> User | None:
    """Return a user who is a number alone: in root's group, as docker's `--user NUMBER` is."""
    return None if uid is None else User(str(uid), uid, frozenset({0}), is_named=False)
