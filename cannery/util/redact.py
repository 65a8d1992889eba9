"""Text without secrets and control characters: what goes to a screen, a log or an error passes through here first."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MASK = "***"
# Everything between the scheme and the last @ before the path: passwords with an @ in them exist. Behind `user:` a
# password may also hold what ends a host; what begins as a port does is a host's, whose path may have an @.
_USERINFO = re.compile(r"(://)(?:[^/\s\"'<>]+@|[^/\s:@\"'<>]+:(?!\d{1,5}(?:[/?#\s]|$))\S*@)")
# `user:password@host` without a scheme, as a proxy or a registry may be given. What is behind the @ of an image's
# reference is a digest, of a package URL a version.
_PACKAGE_URL = r"pkg:(?:deb|docker|generic|github|pypi|rpm)/"
_BARE_USERINFO = re.compile(rf"(?<![\w.+~%@/-])(?!{_PACKAGE_URL})[\w.+~%-]+:(?!//)[^\s\"'<>]+@(?!sha\d+:)(?=[\w\[])")
# A user in a web address, or a user and a password in any. A password may hold what ends a host; a port does not.
CREDENTIALS = re.compile(r"https?://[^/\s]*@|://[^/\s:@]*:(?!\d{1,5}(?:[/?#]|$))\S*@")
# A shorter secret is a part of half of all words: it is masked as a part of a URL, not by itself.
_SHORTEST = 3
# Shorter pieces of a multi-line secret ("}", "EOF") are no secret and would blank half the log.
_SHORTEST_LINE = 6
# All control characters but tab and line feed (a carriage return overwrites a line), line separators, and what changes
# the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def redactor(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Return a function that masks `secrets` and the user part of URLs in a text.

    A secret of several lines (a key, a netrc) is masked line by line, because logs are read by line; a secret is
    also masked in its percent-encoded form, as it is in URLs, and with JSON's escapes.
    """
    pieces: set[str] = set()
    for secret in secrets:
        whole = secret.strip()
        lines = [line.strip() for line in whole.splitlines()]
        wanted = [whole] if len(lines) <= 1 else [line for line in lines if len(line) >= _SHORTEST_LINE]
        pieces.update(piece for one in wanted if len(one) >= _SHORTEST for piece in _forms(one))
    # Longest first: a secret that begins with another must not leave its tail behind.
    pattern = "|".join(re.escape(p) for p in sorted(pieces, key=lambda p: (-len(p), p)))
    compiled = re.compile(pattern) if pattern else None

    def redact(text: str) -> str:
        masked = compiled.sub(MASK, text) if compiled else text
        return _BARE_USERINFO.sub(f"{MASK}@", _USERINFO.sub(rf"\1{MASK}@", masked)) if "@" in masked else masked

    return redact


def _forms(secret: str) -> tuple[str, ...]:
    """Return how one secret is written: as it is, in URLs, in JSON and what looks like it (TOML, logs), in Python."""
    escaped = (json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    # Python's own writing escapes a quote where the text around has the other kind too.
    written = (repr(secret)[1:-1], repr(f'"{secret}')[2:-1])
    return (secret, quote(secret, safe=""), *escaped, *written)


def plain(text: str) -> str:
    r"""Return `text` with `\uXXXX` for each control character: JSON reads it as the same character, people as text."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
