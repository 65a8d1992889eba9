"""apt's own words turned into errors of Cannery's kinds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from cannery.errors import NetworkError, UnableError
from cannery.util.addresses import redactor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.standin.io.apt_sources import Source
    from cannery.util.io.process import CommandError


def explain(error: CommandError, suite: str, sources: Sequence[Source]) -> NoReturn:
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
