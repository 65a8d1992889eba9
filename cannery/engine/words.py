"""The message of a failed docker command, without the help that follows it."""

from __future__ import annotations

import re

# After the engine's own message, by the client's version: "See 'docker run --help'." or "Run '…' for more information".
_HELP = re.compile(r"(?:See|Run) 'docker[^']* --help'.*")
_FROM = re.compile(r"(?:docker: )?(?:Error response from daemon: )?")


def client_words(error: str, status: int) -> str:
    """Return the last line of a client's standard error that is a message; its status where there is none."""
    lines = [line.strip() for line in error.splitlines()]
    messages = [line for line in lines if line and not _HELP.fullmatch(line)]
    return _FROM.sub("", messages[-1], count=1) if messages else f"status {status}"
