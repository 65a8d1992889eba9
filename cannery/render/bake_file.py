"""The keys that a bake file may have. buildx drops a misspelt key without a word and exits 0 (0.13.1, tried)."""

from __future__ import annotations

import difflib
from typing import Any

from cannery.errors import UsageError

# docs.docker.com, "Bake file reference"; keys of newer buildx included: an older one ignores them.
_TOP = frozenset({"group", "target", "variable", "function"})
_GROUP = frozenset({"targets", "name", "description"})
_TARGET = frozenset(
    {
        "annotations", "args", "attest", "cache-from", "cache-to", "call", "context", "contexts",
        "description", "dockerfile", "dockerfile-inline", "entitlements", "extra-hosts", "inherits",
        "labels", "matrix", "name", "network", "no-cache", "no-cache-filter", "output", "platforms",
        "policy", "pull", "secret", "shm-size", "ssh", "tags", "target", "ulimits",
    }
)  # fmt: skip

# From buildx 0.20 on, bake asks before it reads a file outside its folder. The host's CA bundle and the list of its
# mirrors lie there, and the bake file is our own: no question. (0.29 asks none with rawjson, but does with plain.)
NO_QUESTION = {"BUILDX_BAKE_ENTITLEMENTS_FS": "0"}


def check_bake(document: object, where: str) -> dict[str, Any]:
    """Return `document` as a table. Raises UsageError that names every key no buildx knows, with the nearest one."""
    if not isinstance(document, dict):
        raise UsageError("a bake file is a JSON object", where=where)
    wrong = _unknown(document, _TOP, "")
    for kind, known in (("group", _GROUP), ("target", _TARGET)):
        table = document.get(kind, {})
        for name, entry in table.items() if isinstance(table, dict) else ():
            wrong += _unknown(entry, known, f"{kind}.{name}.") if isinstance(entry, dict) else []
    if wrong:
        raise UsageError("; ".join(wrong), where=where, hint="buildx would drop them without a word")
    return document


def _unknown(table: dict[str, Any], known: frozenset[str], prefix: str) -> list[str]:
    found = []
    for key in table:
        if key not in known and not key.startswith("x-"):
            near = difflib.get_close_matches(key, sorted(known), n=1)
            found.append(f"unknown key {prefix}{key}{f' (did you mean {near[0]}?)' if near else ''}")
    return found
