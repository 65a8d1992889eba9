"""What a build step needs of this host and an image must not keep: the CA bundle and the distribution's mirror.

They reach BuildKit as secrets, each by id and by a variable that names its file (`render.SECRETS`), so no host path
is in a rendered file and nothing of them stays in a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cannery.engine.own.apt import distribution_sources, host_release, source_lines
from cannery.errors import UsageError
from cannery.render.render import NO_SECRET, PROXIES, SECRETS
from cannery.util.io.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.util.io.pip_settings import PipSettings

# BuildKit refuses a secret of more than 500 KiB (its MaxSecretSize).
MAX_SECRET = 500 * 1024
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Secrets:
    """Environment variables for the build, and the values that no log may show."""

    env: Mapping[str, str]
    values: tuple[str, ...]


def build_secrets(cache: Path, env: Mapping[str, str], pip: PipSettings, suite: str | None) -> Secrets:
    """Collect the secrets of this host; `suite` is the Debian suite of the base, None for a base with its own sources.

    Files that are made for this are in the cache, readable by their owner only. Raises `UsageError` when a CA bundle
    that the host's settings name cannot be read.
    """
    folder = cache / "secrets"
    found = {SECRETS["ca"]: _ca(env, pip, folder / "ca.pem"), SECRETS["apt_sources"]: NO_SECRET}
    mirrors = distribution_sources(host_release()) if suite else ()
    if suite:
        write_atomic(folder / "apt.list", source_lines(suite, mirrors), mode=0o600)
        found[SECRETS["apt_sources"]] = str(folder / "apt.list")
    for name in PROXIES:
        found[name] = env.get(name) or env.get(name.upper()) or ""
    urls = [found["http_proxy"], found["https_proxy"], *(uri for mirror in mirrors for uri in mirror.uris)]
    passwords = [urlsplit(url).password for url in urls]
    return Secrets(found, tuple(p for p in (*passwords, *pip.credentials()) if p))


def _ca(env: Mapping[str, str], pip: PipSettings, copy: Path) -> str:
    """Return the path of the host's CA bundle: pip's `cert`, else the usual variables, else none."""
    named = pip.cert or next((v for n in CA_VARIABLES if (v := env.get(n))), "")
    if not named:
        return NO_SECRET
    try:
        text = Path(named).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        hint = "see `pip config list` and SSL_CERT_FILE"
        raise UsageError(f"the CA bundle cannot be read: {error}", hint=hint) from error
    if len(text.encode()) <= MAX_SECRET:
        return str(Path(named).absolute())
    text = _only_certificates(text)
    if len(text.encode()) > MAX_SECRET:
        hint = "name a bundle of your own mirror's certificates alone: `pip config set global.cert FILE`"
        what = f"the CA bundle is larger than BuildKit takes ({MAX_SECRET >> 10} KiB)"
        raise UsageError(what, where=named, hint=hint)
    write_atomic(copy, text, mode=0o600)
    return str(copy)


def _only_certificates(text: str) -> str:
    """Return a bundle without its comments, which can make it larger than a secret may be."""
    kept, inside = [], False
    for line in text.splitlines():
        inside = inside or line.startswith("-----BEGIN")
        kept += [line] if inside else []
        inside = inside and not line.startswith("-----END")
    return "\n".join(kept) + "\n"
