"""What must not be in a rendered Dockerfile, whoever changed a template: found before anything is built.

Each rule is a small function over the instructions; where it comes from is beside it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.compat.findings import Finding, in_order
from cannery.util.redact import CREDENTIALS
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REMOTE = re.compile(r"(?:https?|git|ssh)://|git@|\S+\.git(?:#\S*)?$")
ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
ARGUMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:=|$)")


@dataclass(frozen=True)
class Instruction:
    """One instruction: line number of its start (from 1), keyword in upper case, and the rest on one line."""

    line: int
    keyword: str
    rest: str


def instructions(dockerfile: str) -> tuple[Instruction, ...]:
    """Split a Dockerfile into instructions; comments and empty lines are left out, continued lines joined."""
    found: list[Instruction] = []
    start, parts = 0, [""]
    for number, line in enumerate(dockerfile.splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not any(parts):
            start = number
        parts.append(text.removesuffix("\\").strip())
        if not text.endswith("\\"):
            keyword, _, rest = " ".join(filter(None, parts)).partition(" ")
            found.append(Instruction(start, keyword.upper(), rest.strip()))
            parts = [""]
    return tuple(found)


def lint(dockerfile: str) -> tuple[Finding, ...]:
    """Return what is wrong in a Dockerfile, as errors."""
    found = instructions(dockerfile)
    return in_order([*_remote_add(found), *_private(found), *_unused(found)])


def _remote_add(found: Sequence[Instruction]) -> Iterator[Finding]:
    """ADD of a URL or repository ignores proxy arguments, which RUN honours (moby/buildkit issue 5329)."""
    for one in found:
        words = [word for word in one.rest.split() if not word.startswith("--")][:-1] if one.keyword == "ADD" else []
        for word in words:
            if REMOTE.match(word):
                yield Finding(
                    Severity.ERROR,
                    "lint-add",
                    f"Dockerfile:{one.line}: ADD {word.partition('@')[2] or word} fetches past the proxy",
                    "BuildKit gives proxy arguments to RUN alone (moby/buildkit issue 5329)",
                    "let Cannery fetch it as a source, or fetch it in a RUN",
                )


def _private(found: Sequence[Instruction]) -> Iterator[Finding]:
    """ENV, ARG and LABEL stay in the image's history: no credentials, no address of somebody's network."""
    for one in found:
        if one.keyword not in {"ENV", "ARG", "LABEL"}:
            continue
        if CREDENTIALS.search(one.rest):
            yield _stays(one, "credentials in a URL")
        addresses = [text for text in ADDRESS.findall(one.rest) if _is_private(text)]
        if addresses:
            yield _stays(one, f"the private address {addresses[0]}")


def _is_private(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_private and not address.is_unspecified


def _stays(one: Instruction, what: str) -> Finding:
    return Finding(
        Severity.ERROR,
        "lint-private",
        f"Dockerfile:{one.line}: {one.keyword} holds {what}",
        "it stays in the image and its history, for everybody who pulls it",
        "proxies reach RUN steps by themselves; anything secret is a build secret (templates/stages/system.j2)",
    )


def _unused(found: Sequence[Instruction]) -> Iterator[Finding]:
    """An argument that nothing reads is a value that somebody believes to have set (vllm-ascend pull 7278)."""
    for number, one in enumerate(found):
        match = ARGUMENT.match(one.rest) if one.keyword == "ARG" else None
        if match is None:
            continue
        name = match["name"]
        used = re.compile(rf"\$(?:{name}\b|\{{{name}[:}}])")
        if not any(used.search(other.rest) for other in found[number + 1 :]):
            yield Finding(
                Severity.ERROR,
                "lint-arg",
                f"Dockerfile:{one.line}: ARG {name} is declared and never used",
                "who sets it believes that it does something",
                "use it, or take it out of the template",
            )
