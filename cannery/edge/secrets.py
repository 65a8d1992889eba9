"""What a build step needs of this host and an image must not keep: the CA bundle and the distribution's mirror.

They reach BuildKit as secrets by id and environment variable (`core.render.SECRETS`), so no host path stands in a
rendered file and nothing of them stays in a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cannery.core.errors import UsageError
from cannery.core.render import PROXIES, SECRETS
from cannery.edge.apt import distribution_sources, host_release, source_lines
from cannery.edge.pipconf import read_pip_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.edge.context import Context

# BuildKit refuses a secret of more than 500 KiB (its MaxSecretSize).
MAX_SECRET = 500 * 1024
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Secrets:
    """Environment variables for the build, and the values in them that no log may show."""

    env: Mapping[str, str]
    values: tuple[str, ...]


def build_secrets(context: Context) -> Secrets:
    """Collect the secrets of this host. Raises `UsageError` when a CA bundle that it names cannot be read."""
    env = dict.fromkeys(SECRETS.values(), "")
    env[SECRETS["ca"]] = _ca(context)
    env[SECRETS["apt_sources"]] = _apt_sources()
    for name in PROXIES:
        env[name] = context.env.get(name) or context.env.get(name.upper()) or ""
    passwords = [urlsplit(env[name]).password for name in ("http_proxy", "https_proxy")]
    settings = read_pip_settings(context.env)
    return Secrets(env, tuple(p for p in (*passwords, *settings.credentials()) if p))


def _ca(context: Context) -> str:
    """Return the host's CA bundle: pip's `cert`, else the usual variables, else "" (the image's own is enough)."""
    named = read_pip_settings(context.env).cert or next((v for n in CA_VARIABLES if (v := context.env.get(n))), "")
    if not named:
        return ""
    try:
        text = Path(named).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"the CA bundle cannot be read: {error}", hint="see `pip config list` and SSL_CERT_FILE"
        ) from error
    return text if len(text) <= MAX_SECRET else _only_certificates(text)


def _only_certificates(text: str) -> str:
    """Return a bundle without its comments, which can make it larger than a secret may be."""
    kept, inside = [], False
    for line in text.splitlines():
        inside = inside or line.startswith("-----BEGIN")
        kept += [line] if inside else []
        inside = inside and not line.startswith("-----END")
    return "\n".join(kept) + "\n"


def _apt_sources() -> str:
    """Return the host's own distribution sources for the stand-in base's suite, or "" where the host is no Debian."""
    try:
        release = host_release()
        return source_lines("bookworm", distribution_sources(release))
    except Exception:  # noqa: BLE001
        return ""
