"""Text without secrets: what goes to a screen, a log or an error passes through here first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MASK = "***"
# Everything between the scheme and the last @ before the path: passwords with an @ in them exist.
_USERINFO = re.compile(r"(://)[^/\s\"'<>]+@")
# Shorter pieces of a multi-line secret ("}", "EOF") are no secret and would blank half the log.
_SHORTEST_LINE = 6


def redactor(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Return a function that masks `secrets` and the user part of URLs in a text.

    A secret of several lines (a key, a netrc) is masked line by line, because logs are read by line; a secret is
    also masked in its percent-encoded form, as it stands in URLs.
    """
    pieces: set[str] = set()
    for secret in secrets:
        whole = secret.strip()
        lines = [line.strip() for line in whole.splitlines()]
        wanted = [whole] if len(lines) <= 1 else [line for line in lines if len(line) >= _SHORTEST_LINE]
        pieces.update(piece for one in wanted for piece in (one, quote(one, safe="")) if piece)
    # Longest first: a secret that begins with another must not leave its tail behind.
    pattern = "|".join(re.escape(p) for p in sorted(pieces, key=lambda p: (-len(p), p)))
    compiled = re.compile(pattern) if pattern else None

    def redact(text: str) -> str:
        masked = compiled.sub(MASK, text) if compiled else text
        return _USERINFO.sub(rf"\1{MASK}@", masked) if "@" in masked else masked

    return redact
