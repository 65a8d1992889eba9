"""Debian packages without installing anything: fetched by the host's own apt, verified by its keys, unpacked beside.

Mirrors, components and keys are those of the host's distribution, read from files only (`/etc/os-release`, `/etc/apt`:
sources.list(5), one-line and deb822), so that no host name of a distribution is in Cannery and a user's mirror is used
as it is. apt runs with its state, lists and archives in folders below Cannery's cache; the host's lists and dpkg state
are neither read for the choice of packages nor written. The host's apt.conf (proxies, certificates, netrc) stays in
force.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, unquote

from cannery.errors import NetworkError, UnableError
from cannery.util.addresses import redactor
from cannery.util.io.files import sha256_bytes, write_atomic
from cannery.util.io.locks import held, own_folder
from cannery.util.io.process import CommandError, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Components of the distributions themselves. A vendor's repository often reuses the codename as its suite, but names a
# component of its own ("stable", "nodistro").
DISTRIBUTION_COMPONENTS = {
    "debian": ("main", "contrib", "non-free", "non-free-firmware"),
    "ubuntu": ("main", "restricted", "universe", "multiverse"),
}
OFFICIAL_KEY = re.compile(r"|(?:.*/)?(?:debian|ubuntu)-archive[^/\n]*")
POCKETS = ("", "-updates", "-security")
ROLLING = ("oldstable", "stable", "testing", "unstable", "sid")
# Options of an entry that say how far the mirror is trusted; they stay in force. Not kept: arch, lang, target, pdiffs.
KEPT_OPTIONS = ("trusted", "allow-insecure", "allow-weak", "check-valid-until", "check-date", "by-hash")


@dataclass(frozen=True)
class HostRelease:
    """Distribution of the host: `id` is debian or ubuntu, `codename` like bookworm."""

    id: str
    codename: str


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
    """Distribution and codename from os-release(5). Derivatives of Ubuntu count by their UBUNTU_CODENAME.

    Raises `UnableError` where the host is neither Debian nor Ubuntu.
    """
    path = etc / "os-release"
    text = path.read_text(errors="replace") if path.is_file() else ""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    fields = {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}
    name = fields.get("ID", "")
    codename = fields.get("VERSION_CODENAME", "")
    if name not in DISTRIBUTION_COMPONENTS and fields.get("UBUNTU_CODENAME"):
        return HostRelease("ubuntu", fields["UBUNTU_CODENAME"])
    if name not in DISTRIBUTION_COMPONENTS or not codename:
        found = fields.get("PRETTY_NAME") or name or "unknown"
        raise UnableError(f"this needs Debian or Ubuntu; the host is {found}", where=str(path))
    return HostRelease(name, codename)


def distribution_sources(release: HostRelease, etc_apt: Path = Path("/etc/apt")) -> tuple[Source, ...]:
    """Entries of the host's apt that serve its own distribution, with their pockets; third parties are left out.

    An entry counts when its suite is the codename (or -updates, -security of it; else a rolling name such as stable)
    and it names a component of the distribution. Entries signed by a key of somebody else count only when nothing
    else is there: that is a company's own mirror. Raises `UnableError` when none is left.
    """
    known = DISTRIBUTION_COMPONENTS[release.id]
    usable = []
    for source in read_sources(etc_apt):
        # Only the distribution's components, and only URIs that a network or folder serves.
        found = (uri for entry in source.uris for uri in _expanded(entry, etc_apt))
        uris = tuple(uri for uri in found if not uri.startswith("cdrom:"))
        components = tuple(c for c in source.components if c in known)
        usable += [replace(source, uris=uris, components=components)] if uris and components else []
    own: list[Source] = []
    for names in ((release.codename,), ROLLING):
        suites = {f"{name}{pocket}" for name in names for pocket in POCKETS}
        own = own or [source for source in usable if source.suite in suites]
    # No key named (apt's trusted ones), or a key file of the distribution's own keyring package.
    chosen = [source for source in own if OFFICIAL_KEY.fullmatch(source.signed_by)] or own
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


# Enough for every package Cannery takes; other components would only cost time.
FETCH_COMPONENTS = ("main", "universe")
UPDATE_TIMEOUT = 180.0  # seconds
DOWNLOAD_TIMEOUT = 1800.0
WITH_US = ("setpriv", "--pdeathsig", "KILL")

# Read by apt-get -c, that is after the host's own apt.conf. Hooks are cleared because they would run the host's
# programs on the host's state; a default release of the host would name a suite that this apt does not have. Words
# without quotation marks may hold %XX, so that any folder's name can be in it.
CONFIG = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear APT::Architectures;
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Default-Release "";
APT::Get::AllowUnauthenticated "false";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::Retries "1";
Acquire::http::Timeout "8";
Acquire::https::Timeout "8";
Acquire::ftp::Timeout "8";
Dir::State {folder}/state;
Dir::State::lists {folder}/state/lists;
Dir::State::status {folder}/state/status;
Dir::State::extended_states {folder}/state/extended_states;
Dir::Cache {folder}/cache;
Dir::Cache::archives {folder}/cache/archives;
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist {folder}/sources.list;
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Log {folder}/log;
"""


def fetch_debs(
    names: Sequence[str], *, suite: str, arch: str, cache: Path, dependencies: bool = False
) -> tuple[Path, ...]:
    """Newest .deb of each of `names` in `suite` for `arch` (Debian's word: amd64, arm64), kept below `cache`/apt.

    They come from the host's distribution sources. With `dependencies`, everything they depend on comes along, down to
    libc (without recommended ones). apt holds each file to the hash of the index before it is moved there; one that is
    there is taken. The paths come in apt's order, not in that of `names`. Raises `NetworkError` naming the mirror that
    does not answer, and `UnableError` where a package does not exist, a signature is not good or apt is missing.
    """
    sources = for_suite(distribution_sources(host_release()), suite, arch=arch, components=FETCH_COMPONENTS)
    if not sources:
        raise UnableError(f"the host's package sources serve no {arch} packages of {suite}", where="/etc/apt")
    folder = _apt_folder(sources, suite, arch, cache)
    archives = folder / "archives"
    archives.mkdir(exist_ok=True)
    with held(folder / "cannery.lock", lambda: None):
        try:
            _apt(folder, "update", timeout=UPDATE_TIMEOUT)
            ask = ("install", "--yes", "--download-only") if dependencies else ("download",)
            listing = _apt(folder, *ask, "--print-uris", *names, timeout=UPDATE_TIMEOUT)
            files: list[str] = re.findall(r"^'[^']*' (\S+\.deb) \d+", listing, re.MULTILINE)
            missing = [file for file in files if not (archives / file).is_file()]
            if missing:
                _download(folder, missing, archives)
        except CommandError as error:
            _explain(error, suite, sources)
    return tuple(archives / file for file in files)


def unpack(deb: Path, dest: Path) -> None:
    """Unpack the files of `deb` below `dest`; no maintainer script runs. Raises `UnableError` when it is no package."""
    dest.mkdir(parents=True, exist_ok=True)
    try:
        run(("dpkg-deb", "-x", deb, dest))
    except CommandError as error:
        raise UnableError(f"{deb.name} cannot be unpacked: {error.stderr.strip()}", where=str(deb)) from error


def _apt_folder(sources: Sequence[Source], suite: str, arch: str, cache: Path) -> Path:
    """Folder of a private apt for exactly these sources, with its configuration written."""
    base = (cache / "apt").resolve()
    text = ""
    for source in sources:
        key = source.signed_by
        if "\n" in key:  # an inline one
            file = base / "keys" / f"{sha256_bytes(key.encode())[:16]}.asc"
            write_atomic(file, key + "\n")
            key = str(file)
        text += source_lines(suite, (source,), signed_by=key, extra="lang=none target=Packages")
    folder = base / f"{suite}-{arch}-{sha256_bytes(text.encode())[:8]}"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "state/status").touch()
    write_atomic(folder / "sources.list", text, mode=0o600)  # may hold a mirror's password
    write_atomic(folder / "apt.conf", CONFIG.format(arch=arch, folder=quote(str(folder))))
    return folder


def _apt(folder: Path, *args: str, timeout: float, cwd: Path | None = None) -> str:
    """Run the private apt-get. It ends with this process: one that a killed run left would hold apt's own lock."""
    env = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    command: tuple[str | Path, ...] = (*WITH_US, "apt-get", "-q", "-c", folder / "apt.conf", *args)
    return run(command, env=env, cwd=cwd, timeout=timeout).stdout


def _download(folder: Path, missing: Sequence[str], archives: Path) -> None:
    """Download into a folder beside, where apt checks each hash, and only then move into place."""
    parts = [file.split("_") for file in missing]
    with own_folder(folder / "get") as scratch:
        requests = (f"{name}={unquote(version)}" for name, version, *_ in parts)
        _apt(folder, "download", *requests, timeout=DOWNLOAD_TIMEOUT, cwd=scratch)
        try:
            for file in missing:
                (scratch / file).replace(archives / file)
        except FileNotFoundError as error:
            raise NetworkError(f"{Path(error.filename).name} did not arrive", hint="run the command again") from error


def _explain(error: CommandError, suite: str, sources: Sequence[Source]) -> NoReturn:
    """Turn apt's own words into the error of its kind, without credentials."""
    redact = redactor()
    text, mirror = redact(f"{error.stderr}\n{error.stdout}"), redact(sources[0].uris[0])
    gone = re.search(r"Unable to locate package (\S+)|Package '?([^\s']+)'? has no installation candidate", text)
    if gone:
        raise UnableError(f"{suite} has no package {gone[1] or gone[2]}", where=mirror) from error
    if re.search(r"NO_PUBKEY|GPG error|is not signed|EXPKEYSIG|BADSIG|OpenPGP signature verification failed", text):
        raise UnableError(
            f"the signature of {suite} cannot be verified with the host's keys",
            where=mirror,
            hint="update the package debian-archive-keyring or ubuntu-keyring",
        ) from error
    failed = re.search(r"Failed to fetch (\S+?)(?:/dists/\S*|/pool/\S*)?\s+(.+)", text)
    if failed or error.returncode == 124:
        reason = failed[2].strip() if failed else "no answer in time"
        raise NetworkError(
            f"the package mirror does not deliver {suite}: {reason}",
            where=failed[1] if failed else mirror,
            hint="look at /etc/apt/sources.list* and the proxy in apt.conf",
        ) from error
    raise UnableError(f"apt failed for {suite}:\n{text.strip()[-1500:]}", where=mirror) from error
