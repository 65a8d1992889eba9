"""The host's pip settings: what pip itself says they are, and the same settings in uv's words.

pip is asked (`python -m pip config list`), so that its own files, environment and precedence count. uv reads none of
them. Credentials stand in URLs here; they reach uv by environment only, and `redact` takes them out of any text.
"""

from __future__ import annotations

import ast
import logging
import math
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from cannery.core.errors import UnableError
from cannery.edge.process import CommandError, run

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

# pip's own default, seconds.
PIP_TIMEOUT = 15.0
# Later ones win, as in `pip install`: pip looks at [global], then at the command's section, then at the environment.
SECTIONS = ("global", "install", ":env:")
# Other spellings of an option that pip accepts.
ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url", "extra-index-urls": "extra-index-url"}
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
NOT_TAKEN = {
    "constraint": "pip's `constraint` setting is not taken over: the lock decides versions",
    "no-index": "pip's `no-index` setting is not taken over: locking asks the index",
}


def without_credentials(url: str) -> str:
    """Return `url` without the `user:password@` part."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else url


def shown(url: str) -> str:
    """Return `url` as messages have it: without credentials, and `***` for a query, which may be a token."""
    parts = urlsplit(without_credentials(url))
    return urlunsplit(parts._replace(query="***")) if parts.query else without_credentials(url)


def url_credentials(url: str) -> tuple[str, str] | None:
    """Return (user, password) of a URL, decoded; None when it holds none."""
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return None
    return unquote(parts.username or ""), unquote(parts.password or "")


@dataclass(frozen=True)
class PipSettings:
    """What the host's pip uses. URLs may hold credentials, so they are left out of `repr`. `timeout` is in seconds.

    `index_url` is "" where pip's own default counts. `notes` are printed lines: settings that are not taken over.
    """

    index_url: str = field(default="", repr=False)
    extra_index_urls: tuple[str, ...] = field(default=(), repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    cert: str = ""
    client_cert: str = ""
    proxy: str = field(default="", repr=False)
    timeout: float = PIP_TIMEOUT
    trusted_hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # Proxies that stand in the environment, only so that their credentials can be redacted.
    environment_proxies: tuple[str, ...] = field(default=(), repr=False)

    @property
    def urls(self) -> tuple[str, ...]:
        """Every URL that may hold credentials, or a token in its query."""
        mine = (self.index_url, *self.extra_index_urls, *self.find_links, self.proxy, *self.environment_proxies)
        return tuple(url for url in mine if "@" in url or "?" in url)

    def credentials(self) -> tuple[str, ...]:
        """Return the secret parts, longest first: `user:password` as written, password (also decoded), query."""
        found: set[str] = set()
        for url in self.urls:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            userinfo, at, _host = parts.netloc.rpartition("@")
            found.add(parts.query)
            password = userinfo.partition(":")[2]
            # A token may stand in the user's place, without a password.
            found |= {userinfo, password or userinfo, unquote(password or userinfo)} if at else set()
        return tuple(sorted(found - {""}, key=lambda secret: (-len(secret), secret)))

    def redact(self, text: str) -> str:
        """Return `text` with `***` in place of every secret."""
        for secret in self.credentials():
            text = text.replace(secret, "***")
        return text


def read_pip_settings(env: Mapping[str, str]) -> PipSettings:
    """Ask pip for its settings under the environment `env`.

    Raises `UnableError` when no pip answers.
    """
    return parse_pip_settings(_config_list(env), env)


def _config_list(env: Mapping[str, str]) -> str:
    """Output of `pip config list`, from the pip of the running Python, else of the first python3 on PATH."""
    other = shutil.which("python3", path=env.get("PATH"))
    reasons: list[str] = []
    for python in (sys.executable, other):
        if not python:
            continue
        try:
            return run([python, "-m", "pip", "config", "list"], env=dict(env), timeout=60).stdout
        except CommandError as error:
            lines = (error.stderr or error.stdout).strip().splitlines()
            reasons.append(f"{python}: {lines[-1] if lines else f'status {error.returncode}'}")
    raise UnableError(
        "no pip answers with its settings: " + "; ".join(reasons), hint="install python3-pip or ensurepip"
    )


def parse_pip_settings(listing: str, env: Mapping[str, str]) -> PipSettings:
    """Read what `pip config list` printed: `section.key='value'` lines, values as Python literals."""
    values: dict[str, str] = {}
    ranks: dict[str, int] = {}
    for line in listing.splitlines():
        left, equals, literal = line.partition("=")
        section, _, key = left.rpartition(".")
        if not equals or section not in SECTIONS:
            continue
        key = ALIASES.get(key, key)
        if SECTIONS.index(section) >= ranks.get(key, 0):
            ranks[key] = SECTIONS.index(section)
            values[key] = _literal(literal)
    return PipSettings(
        index_url=values.get("index-url", "").strip(),
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        cert=values.get("cert", "").strip(),
        client_cert=values.get("client-cert", "").strip(),
        proxy=values.get("proxy", "").strip(),
        timeout=_seconds(values.get("timeout", "")),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        notes=tuple(note for key, note in NOT_TAKEN.items() if values.get(key, "").strip() not in ("", "0", "false")),
        environment_proxies=tuple(env[name] for name in PROXY_VARIABLES if env.get(name)),
    )


def _literal(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return PIP_TIMEOUT
    return value if math.isfinite(value) and value > 0 else PIP_TIMEOUT


def uv_environment(settings: PipSettings, env: Mapping[str, str], *, longest: float = 30.0) -> dict[str, str]:
    """Return the environment for uv: `env` without the user's own UV_* variables, plus the host's pip settings.

    Index URLs are not in it (they go by a generated file, without credentials), their credentials are
    `index_credentials`'. `longest` caps the time-out of one read, in seconds: locking reads small files only.
    """
    mine = {name: value for name, value in env.items() if not name.startswith("UV_")}
    if settings.cert:
        mine["SSL_CERT_DIR" if Path(settings.cert).is_dir() else "SSL_CERT_FILE"] = settings.cert
    if settings.client_cert:
        mine["SSL_CLIENT_CERT"] = settings.client_cert
    if settings.proxy:
        mine |= dict.fromkeys(PROXY_VARIABLES, settings.proxy)
    if settings.trusted_hosts:
        mine["UV_INSECURE_HOST"] = " ".join(settings.trusted_hosts)
    mine["UV_HTTP_TIMEOUT"] = str(math.ceil(min(settings.timeout, longest)))
    mine["UV_HTTP_RETRIES"] = "2"
    mine["UV_PYTHON_DOWNLOADS"] = "never"
    mine["NO_COLOR"] = "1"
    return mine


def index_credentials(name: str, url: str) -> dict[str, str]:
    """Return the variables that give uv the credentials of `url` for the index called `name` in its file."""
    found = url_credentials(url)
    if found is None:
        return {}
    stem = "UV_INDEX_" + "".join(sign if sign.isalnum() else "_" for sign in name.upper())
    return {f"{stem}_USERNAME": found[0], f"{stem}_PASSWORD": found[1]}
