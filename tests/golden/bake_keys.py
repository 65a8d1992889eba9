"""The keys that a bake file may have. buildx drops a misspelt key without a word and exits 0 (0.13.1, tried)."""

from __future__ import annotations

from typing import Any

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


def unknown_keys(document: dict[str, Any]) -> list[str]:
    """Return the keys of a bake file that no buildx knows."""
    found = [key for key in document if key not in _TOP]
    for kind, known in (("group", _GROUP), ("target", _TARGET)):
        for name, entry in document.get(kind, {}).items():
            found += [f"{kind}.{name}.{key}" for key in entry if key not in known]
    return found
