"""Shell texts that stand within another text: the code blocks of a page, what a quote hands on, a command's output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.lint.shell_words import OPEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cannery.lint.shell_words import ShellCommand

_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
# What comes along when a command is copied: the shell's prompt for a continued line.
_PROMPT = re.compile(r"(?<=\\\n)>[ \t]+")
_RUNS = re.compile(r"\b(?:docker|podman|nerdctl)\b.*?\b(?:run|create)\b", re.DOTALL)
_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=")
_OUTPUT = re.compile(OPEN, re.DOTALL)
# `<<EOF`, `<<-'EOF'`; not `<<<`, whose text stands in the line itself.
_DOCUMENT = re.compile(r"(?<!<)<<(?P<tabs>-?)[ \t]*(?P<quote>['\"]?)(?P<end>[A-Za-z_]\w*)(?P=quote)")


def of_page(text: str) -> str:
    """Return the code blocks of a page of Markdown, each line where it stood; a text without blocks as it is.

    What stands between blocks is prose, in which an apostrophe is no quote.
    """
    lines, inside, kept = text.split("\n"), False, list[str]()
    fences = [line for line in lines if _FENCE.match(line)]
    for line in lines:
        is_fence = _FENCE.match(line) is not None
        kept.append(line if inside and not is_fence else "")
        inside ^= is_fence
    blocks = "\n".join(kept)
    if len(fences) < 2 or not _RUNS.search(blocks):
        blocks = "\n".join("" if _FENCE.match(line) else line for line in lines)
    return _PROMPT.sub("", blocks)


def without_documents(text: str) -> str:
    """Return a text with the lines of its here-documents empty, each line where it stood.

    They are what a program reads, Python or prose, in which an apostrophe is no quote. One in which an engine runs
    something, for a shell elsewhere or for a file, stays; so does one without an end.
    """
    lines, at = text.split("\n"), 0
    while at < len(lines):
        match = _DOCUMENT.search(lines[at])
        at += 1
        if match is None:
            continue
        ends = (line.lstrip("\t") if match["tabs"] else line for line in lines[at:])
        count = next((number for number, line in enumerate(ends) if line.rstrip("\r") == match["end"]), None)
        if count is not None and not _RUNS.search("\n".join(lines[at : at + count])):
            lines[at : at + count + 1] = [""] * (count + 1)
            at += count + 1
    return "\n".join(lines)


def inner_texts(commands: Iterable[ShellCommand]) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Give each text in which an engine may be asked to run a container, and the variables that are known there.

    `ssh HOST "docker run …"`, `CID=$(docker run …)`, `CMD="docker run …"`.
    """
    for command in commands:
        for word in command.words:
            if not _RUNS.search(word.value):
                continue
            outputs = [match[0] for match in _OUTPUT.finditer(word.value) if _RUNS.search(match[0])]
            if outputs:
                yield from ((one.removeprefix("$(").strip("`)"), command.known) for one in outputs)
            else:
                yield _ASSIGNS.sub("", word.value, count=1) if _ASSIGNS.match(word.value) else word.value, command.known
