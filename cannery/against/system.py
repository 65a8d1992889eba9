"""What an image has below Python: CANN, the OS, and what was left in it that does not belong there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.catalog.versions import order, without_build
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.against.seen import Seen
    from cannery.catalog.catalog import BaseLine

TOOLKIT = "toolkit"
TOOLKIT_HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
LATEST = "/usr/local/Ascend/ascend-toolkit/latest"
TOOLKIT_INFO = "/ascend_toolkit_install.info"
VERSION = re.compile(r"^version=(\S+)", re.MULTILINE)
PROXY = re.compile(r"(?:https?|ftp|all)_proxy", re.IGNORECASE)
HISTORY_PROXY = re.compile(r"\b((?:https?|ftp|all)_proxy)=\S", re.IGNORECASE)
PIP_KEYS = re.compile(r"^\s*(index-url|extra-index-url|proxy|trusted-host|find-links|cert)\s*=", re.MULTILINE)
# Bytes of a cache below which nothing is said.
CACHE_BYTES = 1_000_000


@dataclass(frozen=True)
class CannPart:
    """A part of CANN (toolkit, nnal), its version in canonical form, and the file that says so."""

    name: str
    version: str
    path: str


def cann_parts(seen: Seen, bases: Mapping[str, BaseLine]) -> tuple[CannPart, ...]:
    """Return the parts of CANN that are there, each once; of each name the one in use first, then newer ones first."""
    found: dict[str, CannPart] = {}
    for line in bases.values():
        for file in line.version_files:
            pattern = re.escape(file.line).replace(re.escape("{version}"), r"(\S+)")
            for arch in Arch:
                path = seen.real(file.at(arch))
                match = re.search(rf"^{pattern}\s*$", seen.texts.get(path, ""), re.MULTILINE)
                if match:
                    found[path] = CannPart(file.name, without_build(match[1].lower()), path)
    for path, text in seen.texts.items():
        match = VERSION.search(text) if path.endswith(TOOLKIT_INFO) else None
        if match and path not in found:
            found[path] = CannPart(TOOLKIT, without_build(match[1].lower()), path)
    home = seen.real(next((seen.env[name] for name in TOOLKIT_HOMES if seen.env.get(name)), LATEST))
    newest_first = sorted(found.values(), key=lambda part: order(part.version), reverse=True)
    return tuple(sorted(newest_first, key=lambda part: (part.name != TOOLKIT, not part.path.startswith(f"{home}/"))))


def os_name(seen: Seen) -> str:
    """Return the OS as target names write it (`ubuntu22.04`); "" where it is not said."""
    text = seen.text("/etc/os-release") or seen.text("/usr/lib/os-release") or ""
    values = {name: value.strip("\"' ") for name, _, value in (line.partition("=") for line in text.splitlines())}
    return f"{values.get('ID', '')}{values.get('VERSION_ID', '')}".lower()


@dataclass(frozen=True)
class Leftover:
    """Something that `docker commit` took along: what it is, and where. Never its value."""

    what: str
    where: str


def leftovers(seen: Seen) -> Iterator[Leftover]:
    """Give proxies, pip's settings, caches and files of secrets that are in the image."""
    if names := sorted(name for name, value in seen.env.items() if PROXY.fullmatch(name) and value):
        yield Leftover(f"proxy settings in ENV: {', '.join(names)}", "they hold in every container of it")
    if names := sorted({match[1] for line in seen.history for match in HISTORY_PROXY.finditer(line)}):
        yield Leftover(f"proxy settings in the history: {', '.join(names)}", "docker history shows them")
    for path, text in sorted(seen.texts.items()):
        if path.endswith("pip.conf") and (keys := sorted(set(PIP_KEYS.findall(text)))):
            yield Leftover(f"pip's settings {', '.join(keys)}", path)
    for path, size in sorted(seen.caches.items()):
        if size >= CACHE_BYTES:
            yield Leftover(f"a cache of {size / 1e6:.0f} MB", path)
    for path in sorted(seen.present):
        if not path.endswith(".patch") and ".so" not in path:
            yield Leftover("a file that may hold secrets", path)
