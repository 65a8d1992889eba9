"""Debian packages without installing anything: fetched by the host's own apt, verified by its keys, unpacked beside.

apt runs with its state, lists and archives in folders below Cannery's cache; the host's sources, lists and dpkg state
are neither read for the choice of packages nor written. The host's apt.conf (proxies, certificates, netrc) stays in
force.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, unquote

from cannery.errors import NetworkError, UnableError
from cannery.standin.io.apt_sources import Source, distribution_sources, for_suite, host_release, source_lines
from cannery.util.addresses import redactor
from cannery.util.io.files import sha256_bytes, write_atomic
from cannery.util.io.locks import held, own_folder
from cannery.util.io.process import CommandError, run

if TYPE_CHECKING:
    from collections.abc import Sequence

# Enough for every package Cannery takes; other components would only cost time.
FETCH_COMPONENTS = ("main", "universe")
UPDATE_TIMEOUT = 180.0  # seconds
DOWNLOAD_TIMEOUT = 1800.0
WITH_US = ("setpriv", "--pdeathsig", "KILL")

# Read by apt-get -c, that is after the host's own apt.conf. Hooks are cleared because they would run the host's
# programs on the host's state; a default release of the host would name a suite that this apt does not have. Words
# without quotation marks may hold %XX, so that any folder's name can stand there.
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


def fetch_debs(  # noqa: PLR0913 - what to fetch, for whom, from where
    names: Sequence[str],
    *,
    suite: str,
    arch: str,
    cache: Path,
    sources: Sequence[Source] = (),
    dependencies: bool = False,
) -> tuple[Path, ...]:
    """Newest .deb of each of `names` in `suite` for `arch` (Debian's word: amd64, arm64), kept below `cache`/apt.

    `sources` are the host's distribution sources when empty. With `dependencies`, everything they depend on comes
    along, down to libc (without recommended ones). apt holds each file to the hash of the index before it is moved
    there; one that is there is taken. The paths come in apt's order, not in that of `names`. Raises `NetworkError`
    naming the mirror that does not answer, and `UnableError` where a package does not exist, a signature is not good
    or apt is missing.
    """
    sources = for_suite(sources or distribution_sources(host_release()), suite, arch=arch, components=FETCH_COMPONENTS)
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
    text = "".join(
        source_lines(suite, (source,), signed_by=_key_file(source, base), extra="lang=none target=Packages")
        for source in sources
    )
    folder = base / f"{suite}-{arch}-{sha256_bytes(text.encode())[:8]}"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "state/status").touch()
    write_atomic(folder / "sources.list", text, mode=0o600)  # may hold a mirror's password
    write_atomic(folder / "apt.conf", CONFIG.format(arch=arch, folder=quote(str(folder))))
    return folder


def _key_file(source: Source, base: Path) -> str:
    """Path of the entry's key, an inline one put into a file; "" where the host's apt goes by its trusted keys."""
    if "\n" not in source.signed_by:
        return source.signed_by
    path = base / "keys" / f"{sha256_bytes(source.signed_by.encode())[:16]}.asc"
    write_atomic(path, source.signed_by + "\n")
    return str(path)


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
