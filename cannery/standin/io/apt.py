"""Fetches Debian packages with the host's apt, verifies them with its keys, and unpacks them. Nothing is installed.

Mirrors, components and keys are those of the host's distribution. They are read from `/etc/os-release` and `/etc/apt`
(sources.list(5), one-line and deb822), so a user's mirror is used and Cannery has no host names. apt runs with its
state, lists and archives in folders below Cannery's cache. The host's lists and dpkg state are not read or written. The
host's apt.conf (proxies, certificates, netrc) is used.
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

# The components of the distributions. A vendor's repository often has the codename as its suite, but another component
# ("stable", "nodistro").
DISTRIBUTION_COMPONENTS = {
    "debian": ("main", "contrib", "non-free", "non-free-firmware"),
    "ubuntu": ("main", "restricted", "universe", "multiverse"),
}
OFFICIAL_KEY = re.compile(r"|(?:.*/)?(?:debian|ubuntu)-archive[^/\n]*")
POCKETS = ("", "-updates", "-security")
ROLLING = ("oldstable", "stable", "testing", "unstable", "sid")
# Options of an entry about trust in the mirror, which are kept. Not kept are arch, lang, target and pdiffs.
KEPT_OPTIONS = ("trusted", "allow-insecure", "allow-weak", "check-valid-until", "check-date", "by-hash")


@dataclass(frozen=True)
class HostRelease:
    """The distribution of the host: `id` is debian or ubuntu, `codename` is for example bookworm."""

    id: str
    codename: str


@dataclass(frozen=True)
class Source:
    """One suite of one apt entry. `signed_by` is the path of a key file, an inline armoured key, or "" (apt's keys)."""

    uris: tuple[str, ...]
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""
    architectures: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def serves(self, arch: str) -> bool:
        """Whether the entry is for `arch`."""
        return not self.architectures or arch in self.architectures


def host_release(etc: Path = Path("/etc")) -> HostRelease:
    """Return distribution and codename from os-release(5). Derivatives of Ubuntu use their UBUNTU_CODENAME.

    Raises `UnableError` if the host is neither Debian nor Ubuntu.
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
    """Return the host's apt entries for its own distribution, including -updates and -security.

    An entry counts if it has a component of the distribution, and its suite is the codename (or else a rolling name
    such as stable). Entries with another signing key only count if there are no others: they are a company's mirror.
    Raises `UnableError` if no entry is left.
    """
    known = DISTRIBUTION_COMPONENTS[release.id]
    usable = []
    for source in read_sources(etc_apt):
        # Only components of the distribution, and no URIs of a CD.
        found = (uri for entry in source.uris for uri in _expanded(entry, etc_apt))
        uris = tuple(uri for uri in found if not uri.startswith("cdrom:"))
        components = tuple(c for c in source.components if c in known)
        usable += [replace(source, uris=uris, components=components)] if uris and components else []
    own: list[Source] = []
    for names in ((release.codename,), ROLLING):
        suites = {f"{name}{pocket}" for name in names for pocket in POCKETS}
        own = own or [source for source in usable if source.suite in suites]
    # Without a key (apt's trusted keys), or with a key file of the distribution's keyring package.
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
    """Return the same mirrors for release `suite`: `bookworm-updates` becomes `<suite>-updates`, and so on.

    With `arch`, entries for other architectures are left out. With `components`, only those are kept. -updates and
    -security are left out for unstable, which does not have them.
    """
    found = []
    for source in sources:
        pocket = next((p for p in POCKETS if p and source.suite.endswith(p)), "")
        kept = tuple(c for c in source.components if not components or c in components)
        if kept and (not arch or source.serves(arch)) and not (pocket and suite in {"sid", "unstable"}):
            found.append(replace(source, suite=f"{suite}{pocket}", components=kept))
    return tuple(dict.fromkeys(found))


def source_lines(suite: str, sources: Sequence[Source], *, signed_by: str = "", extra: str = "") -> str:
    """Return a sources.list for `suite` on the mirrors of `sources`, for a build or a private apt.

    `signed_by` is the path of the key file in that system ("": its trusted keys). `extra` are further options. The text
    may have the credentials of a mirror: pass it as a secret, never write it into an image.
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
    """Yield the enabled binary entries of sources.list, sources.list.d/*.list and *.sources, in apt's order."""
    folder = etc_apt / "sources.list.d"
    files = [etc_apt / "sources.list", *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    for path in files:
        if path.is_file():
            text = path.read_text(errors="replace")
            yield from parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text)


def parse_one_line(text: str) -> Iterator[Source]:
    """Yield the `deb [option=value ...] URI SUITE COMPONENT...` entries of a sources.list, without flat ones."""
    for raw in text.splitlines():
        match = re.match(r"deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>.*)", raw.strip())
        if match and not match["suite"].endswith("/"):
            pairs = (word.partition("=") for word in (match["options"] or "").split())
            fields = {key.lower(): value for key, _, value in pairs}
            components = tuple(match["rest"].partition("#")[0].split())
            yield _source((match["uri"],), match["suite"], components, fields)


def parse_deb822(text: str) -> Iterator[Source]:
    """Yield the entries of a *.sources file, one for each suite, without disabled and source-only stanzas."""
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
    # deb822 writes an empty line of an inline key as a single dot
    key = "\n".join("" if line == "." else line for line in fields.get("signed-by", "").strip().splitlines())
    options = tuple((name, fields[name]) for name in KEPT_OPTIONS if name in fields)
    return Source(uris, suite, components, key, tuple(re.split(r"[,\s]+", arches.strip())) if arches else (), options)


def _expanded(uri: str, etc_apt: Path) -> tuple[str, ...]:
    """Return the mirrors in the list file of a `mirror+file:` URI (as in cloud images), or else the URI."""
    if not uri.startswith("mirror+file:"):
        return (uri,)
    path = Path(uri.removeprefix("mirror+file:"))
    if not path.is_file():  # another /etc/apt folder has its mirror list inside
        path = etc_apt / path.relative_to("/etc/apt") if path.is_relative_to("/etc/apt") else path
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    entries = (shlex.split(line, comments=True) for line in lines)
    return tuple(words[0] for words in entries if words)


# These have every package that Cannery needs. Other components would only take time.
FETCH_COMPONENTS = ("main", "universe")
UPDATE_TIMEOUT = 180.0  # seconds
DOWNLOAD_TIMEOUT = 1800.0
WITH_US = ("setpriv", "--pdeathsig", "KILL")

# apt-get -c reads it after the host's apt.conf. Hooks are cleared, because they would run the host's programs on the
# host's state. The default release is cleared, because this apt may not have that suite. Values without quotes may have
# %XX escapes, so any folder name is possible.
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
    """Return the newest .deb of each of `names` in `suite` for `arch` (amd64, arm64), in apt's order.

    They come from the sources of the host's distribution and are kept below `cache`/apt. With `dependencies`, all
    their dependencies are included, but no recommended packages. apt checks the hash of each new file. Raises
    `NetworkError` with the mirror that does not answer, and `UnableError` if a package does not exist, a signature is
    not valid or apt is missing.
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
    """Unpack the files of `deb` below `dest` without running scripts. Raises `UnableError` if it is not a package."""
    dest.mkdir(parents=True, exist_ok=True)
    try:
        run(("dpkg-deb", "-x", deb, dest))
    except CommandError as error:
        raise UnableError(f"{deb.name} cannot be unpacked: {error.stderr.strip()}", where=str(deb)) from error


def _apt_folder(sources: Sequence[Source], suite: str, arch: str, cache: Path) -> Path:
    """Return the folder of a private apt for these sources, and write its configuration."""
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
    write_atomic(folder / "sources.list", text, mode=0o600)  # it may have a mirror's password
    write_atomic(folder / "apt.conf", CONFIG.format(arch=arch, folder=quote(str(folder))))
    return folder


def _apt(folder: Path, *args: str, timeout: float, cwd: Path | None = None) -> str:
    """Run the private apt-get. It ends with this process, so that a killed run does not leave apt's lock held."""
    env = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    command: tuple[str | Path, ...] = (*WITH_US, "apt-get", "-q", "-c", folder / "apt.conf", *args)
    return run(command, env=env, cwd=cwd, timeout=timeout).stdout


def _download(folder: Path, missing: Sequence[str], archives: Path) -> None:
    """Download into a temporary folder, where apt checks each hash, then move the files to `archives`."""
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
    """Raise the error for apt's output, without credentials."""
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
