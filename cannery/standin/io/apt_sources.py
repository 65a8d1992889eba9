"""The host's own package sources: which mirrors, components and keys its distribution comes from.

Read from files only (`/etc/os-release`, `/etc/apt`), so that no host name of a distribution is in Cannery and a
user's mirror is used as it is. Formats: sources.list(5), one-line and deb822.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Components of the distributions themselves. A vendor's repository often reuses the codename as its suite, but names a
# component of its own ("stable", "nodistro").
DISTRIBUTION_COMPONENTS = {
    "debian": ("main", "contrib", "non-free", "non-free-firmware"),
    "ubuntu": ("main", "restricted", "universe", "multiverse"),
}
POCKETS = ("", "-updates", "-security")
ROLLING = ("oldstable", "stable", "testing", "unstable", "sid")
# Options of an entry that say how far the mirror is trusted; they stay in force. Not kept: arch, lang, target, pdiffs.
KEPT_OPTIONS = ("trusted", "allow-insecure", "allow-weak", "check-valid-until", "check-date", "by-hash")


@dataclass(frozen=True)
class HostRelease:
    """Distribution of the host: `id` is debian or ubuntu, `codename` like bookworm, `version` like 12 (may be "")."""

    id: str
    codename: str
    version: str


@dataclass(frozen=True)
class Source:
    """One suite of one apt entry. `signed_by`: a key file's path, an inline armoured key, or "" (apt's own)."""

    uris: tuple[str, ...]
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""
    architectures: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def serves(self, arch: str) -> bool:
        """Whether the entry is not restricted to other architectures."""
        return not self.architectures or arch in self.architectures


def host_release(etc: Path = Path("/etc")) -> HostRelease:
    """Distribution, codename and version from os-release(5). Derivatives of Ubuntu count by their UBUNTU_CODENAME.

    Raises `UnableError` where the host is neither Debian nor Ubuntu.
    """
    path = etc / "os-release"
    text = path.read_text(errors="replace") if path.is_file() else ""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    fields = {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}
    name = fields.get("ID", "")
    codename = fields.get("VERSION_CODENAME", "")
    if name not in DISTRIBUTION_COMPONENTS and fields.get("UBUNTU_CODENAME"):
        return HostRelease("ubuntu", fields["UBUNTU_CODENAME"], "")
    if name not in DISTRIBUTION_COMPONENTS or not codename:
        found = fields.get("PRETTY_NAME") or name or "unknown"
        raise UnableError(f"this needs Debian or Ubuntu; the host is {found}", where=str(path))
    return HostRelease(name, codename, fields.get("VERSION_ID", ""))


def distribution_sources(release: HostRelease, etc_apt: Path = Path("/etc/apt")) -> tuple[Source, ...]:
    """Entries of the host's apt that serve its own distribution, with their pockets; third parties are left out.

    An entry counts when its suite is the codename (or -updates, -security of it; else a rolling name such as stable)
    and it names a component of the distribution. Entries signed by a key of somebody else count only when nothing
    else is there: that is a company's own mirror. Raises `UnableError` when none is left.
    """
    known = DISTRIBUTION_COMPONENTS[release.id]
    usable = [_narrowed(source, known, etc_apt) for source in read_sources(etc_apt)]
    usable = [source for source in usable if source.components and source.uris]
    bases: list[tuple[str, ...]] = [(release.codename,), ROLLING]
    own: list[Source] = []
    for names in bases:
        own = own or [source for source in usable if _base(source.suite, names)]
    chosen = [source for source in own if _official_key(source.signed_by)] or own
    if not chosen:
        raise UnableError(
            f"no package source for {release.id} {release.codename}",
            where=str(etc_apt),
            hint=f"add the distribution's mirror to {etc_apt}/sources.list",
        )
    return tuple(dict.fromkeys(chosen))


def for_suite(
    sources: Sequence[Source], suite: str, *, arch: str = "", components: tuple[str, ...] = ()
) -> tuple[Source, ...]:
    """The same mirrors, asked for release `suite` instead: `bookworm-updates` becomes `<suite>-updates`, and so on.

    `arch` leaves out entries restricted to others; `components` narrows (empty: all). The pocket suites do not exist
    for unstable and are dropped there.
    """
    found = []
    for source in sources:
        pocket = next((p for p in POCKETS if p and source.suite.endswith(p)), "")
        kept = tuple(c for c in source.components if not components or c in components)
        if kept and (not arch or source.serves(arch)) and not (pocket and suite in {"sid", "unstable"}):
            found.append(replace(source, suite=f"{suite}{pocket}", components=kept))
    return tuple(dict.fromkeys(found))


def source_lines(suite: str, sources: Sequence[Source], *, signed_by: str = "", extra: str = "") -> str:
    """One-line sources.list text of `suite` on the mirrors of `sources`, for a build or a private apt.

    `signed_by` is the key file's path *there* ("" leaves the choice to that system's trusted keys); `extra` are further
    entry options. The text may hold the credentials of a mirror: pass it as a secret, never write it into an image.
    """
    lines = []
    for source in for_suite(sources, suite):
        options = [f"{key}={value}" for key, value in source.options]
        options += [f"signed-by={signed_by}"] if signed_by else []
        options += [extra] if extra else []
        head = f"deb [{' '.join(options)}]" if options else "deb"
        lines += [f"{head} {uri} {source.suite} {' '.join(source.components)}" for uri in source.uris]
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


def read_sources(etc_apt: Path) -> Iterator[Source]:
    """Every enabled binary entry of sources.list, sources.list.d/*.list and *.sources, in apt's order."""
    folder = etc_apt / "sources.list.d"
    files = [etc_apt / "sources.list", *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    for path in files:
        if path.is_file():
            text = path.read_text(errors="replace")
            yield from parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text)


def parse_one_line(text: str) -> Iterator[Source]:
    """Entries of a sources.list: `deb [option=value ...] URI SUITE COMPONENT...`; source and flat ones are left out."""
    for raw in text.splitlines():
        match = re.match(r"deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>.*)", raw.strip())
        if match and not match["suite"].endswith("/"):
            pairs = (word.partition("=") for word in (match["options"] or "").split())
            fields = {key.lower(): value for key, _, value in pairs}
            components = tuple(match["rest"].partition("#")[0].split())
            yield _source((match["uri"],), match["suite"], components, fields)


def parse_deb822(text: str) -> Iterator[Source]:
    """Entries of a *.sources file, one a suite; `Enabled: no` and source-only stanzas are left out."""
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", kept):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line[:1].isspace() and key:
                fields[key] += "\n" + line.strip()
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        enabled = fields.get("enabled", "yes").lower() not in {"no", "false", "0", "off", "without", "disable"}
        if enabled and "deb" in fields.get("types", "").split():
            for suite in fields.get("suites", "").split():
                if not suite.endswith("/"):
                    uris = tuple(fields.get("uris", "").split())
                    yield _source(uris, suite, tuple(fields.get("components", "").split()), fields)


def _source(uris: tuple[str, ...], suite: str, components: tuple[str, ...], fields: dict[str, str]) -> Source:
    arches = fields.get("arch", fields.get("architectures", ""))
    # deb822 writes an empty line of an inline key as a lone dot
    key = "\n".join("" if line == "." else line for line in fields.get("signed-by", "").strip().splitlines())
    options = tuple((name, fields[name]) for name in KEPT_OPTIONS if name in fields)
    return Source(uris, suite, components, key, tuple(re.split(r"[,\s]+", arches.strip())) if arches else (), options)


def _narrowed(source: Source, known: tuple[str, ...], etc_apt: Path) -> Source:
    """Only the distribution's components, and only URIs that a network or folder serves."""
    uris = [uri for entry in source.uris for uri in _expanded(entry, etc_apt) if not uri.startswith("cdrom:")]
    return replace(source, uris=tuple(uris), components=tuple(c for c in source.components if c in known))


def _expanded(uri: str, etc_apt: Path) -> tuple[str, ...]:
    """Mirrors in the list file of a `mirror+file:` URI (cloud images have one), else the URI itself."""
    if not uri.startswith("mirror+file:"):
        return (uri,)
    path = Path(uri.removeprefix("mirror+file:"))
    if not path.is_file():  # a sources folder read from elsewhere carries its mirror list along
        path = etc_apt / path.relative_to("/etc/apt") if path.is_relative_to("/etc/apt") else path
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    entries = (shlex.split(line, comments=True) for line in lines)
    return tuple(words[0] for words in entries if words)


def _base(suite: str, names: tuple[str, ...]) -> bool:
    return any(suite == f"{name}{pocket}" for name in names for pocket in POCKETS)


def _official_key(signed_by: str) -> bool:
    """No key named (apt's trusted ones), or a key file of the distribution's own keyring package."""
    if "\n" in signed_by:
        return False
    return not signed_by or bool(re.match(r"(debian|ubuntu)-archive", Path(signed_by).name))
