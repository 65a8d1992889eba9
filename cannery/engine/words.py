"""What docker's client says of a failure, without what it adds to each."""

from __future__ import annotations

import re

# Below an engine's own words, by the client's version: "See 'docker run --help'." or "Run '…' for more information".
_HELP = re.compile(r"(?:See|Run) 'docker[^']* --help'.*")
_FROM = re.compile(r"(?:docker: )?(?:Error response from daemon: )?")


def client_words(error: str, status: int) -> str:
    """Return the last line of a client's standard error that says what is wrong; its status where none does."""
    lines = [line.strip() for line in error.splitlines()]
    said = [line for line in lines if line and not _HELP.fullmatch(line)]
    return _FROM.sub("", said[-1], count=1) if said else f"status {status}"
