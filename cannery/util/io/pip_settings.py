"""The host's pip settings, as `python -m pip config list` prints them, and the same settings for uv.

Because pip lists them, its files, environment and precedence apply. uv does not read them. URLs here may have
credentials. They are only passed to uv through the environment, and `redact` masks them in texts.
"""

from __future__ import annotations

import ast
import logging
import math
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import UnableError, UsageError
from cannery.util.addresses import (
    PROXY_VARIABLES,
    file_path,
    redactor,
    secrets_of,
    shown,
    shown_text,
    url_credentials,
    url_problem,
)
from cannery.util.io.files import home_of, sha256_bytes, write_atomic
from cannery.util.io.process import CommandError, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


log = logging.getLogger(__name__)

# pip's default, in seconds.
PIP_TIMEOUT = 15.0
# Later sections override earlier ones, as in `pip install`: [global], the section of the command, the environment.
SECTIONS = ("global", "install", ":env:")
# Other spellings of an option that pip accepts.
ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url", "extra-index-urls": "extra-index-url"}
URLS = ("index-url", "extra-index-url", "find-links")
NOT_TAKEN = {
    "constraint": "pip's `constraint` setting is ignored: the lock decides versions",
    "no-index": "pip's `no-index` setting is ignored: locking asks the index",
}


# The settings in pip's output that are cached for the next run. Others may be secret.
TAKEN = {
    *("index-url", "extra-index-url", "find-links", "cert", "client-cert", "proxy", "timeout", "trusted-host"),
    *ALIASES,
    *NOT_TAKEN,
}


@dataclass(frozen=True)
class PipSettings:
    """The settings of the host's pip. URLs may have credentials, so `repr` leaves them out. `timeout` is in seconds.

    `index_url` is "" for pip's default. `notes` are lines to print about settings that are ignored.
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
    # Addresses of this machine's mirrors. Their credentials are used and masked like those of indexes.
    mirrors: tuple[str, ...] = field(default=(), repr=False)
    # Proxies in the environment, only for masking their credentials.
    environment_proxies: tuple[str, ...] = field(default=(), repr=False)

    @property
    def urls(self) -> tuple[str, ...]:
        """Every URL that may have credentials, or a token in its query."""
        mine = (self.index_url, *self.extra_index_urls, *self.find_links, self.proxy, *self.environment_proxies)
        mine = (*mine, *self.mirrors)
        return tuple(url for url in mine if "@" in url or "?" in url)

    def credentials(self) -> tuple[str, ...]:
        """Return the secret parts, longest first: `user:password` as written, password (also decoded), query."""
        return secrets_of(self.urls)

    def notes_for(self, *, resolving: bool) -> tuple[str, ...]:
        """Return `notes`. Notes about the resolver are only included with `resolving`."""
        return tuple(note for note in self.notes if resolving or note not in NOT_TAKEN.values())

    def redact(self, text: str) -> str:
        """Return `text` with every secret replaced by `***`."""
        return redactor(self.credentials())(text)


def read_pip_settings(env: Mapping[str, str], cache: Path | None = None) -> PipSettings:
    """Return pip's settings for the environment `env`. They are cached in `cache` until a setting changes.

    Raises `UnableError` if no pip answers, `UsageError` for an invalid URL of an index.
    """
    file = _kept_file(env, cache) if cache else None
    with suppress(OSError):
        if file:
            return parse_pip_settings(file.read_text(encoding="utf-8"), env)
    listing = _config_list(env)
    found = parse_pip_settings(listing, env)
    if file and not found.credentials():
        lines = [line for line in listing.splitlines() if line.partition("=")[0].rpartition(".")[2] in TAKEN]
        with suppress(OSError):
            write_atomic(file, "".join(f"{line}\n" for line in lines), 0o600)
    return found


def _kept_file(env: Mapping[str, str], cache: Path) -> Path:
    """Return the cache file for pip's output, named by a digest of everything that pip reads."""
    texts: list[object] = []
    for path in pip_files(env):
        try:
            texts.append((str(path), path.read_bytes() if path.exists() else None))
        except OSError as error:  # pip reports it
            texts.append((str(path), error.errno))
    variables = sorted(item for item in env.items() if item[0].startswith("PIP_"))
    return cache / "pip" / sha256_bytes(repr((texts, variables)).encode(errors="surrogateescape"))


def pip_files(env: Mapping[str, str]) -> list[Path]:
    """Return the possible settings files of all versions of pip (`pip config debug` lists those of one)."""
    home = home_of(env) or Path("/")
    shared = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    folders = [*(Path(one) / "pip" for one in shared), Path("/etc"), home / ".pip"]
    folders.append(Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip")
    folders += [Path(sys.prefix), *(Path(python).parent.parent for python in _pythons(env))]
    named = [Path(env["PIP_CONFIG_FILE"])] if env.get("PIP_CONFIG_FILE") else []
    return [*named, *dict.fromkeys(folder / "pip.conf" for folder in folders)]


def _pythons(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the running Python, then each python3 on PATH. The first may be in an environment without pip."""
    others = (shutil.which("python3", path=folder) for folder in env.get("PATH", "").split(os.pathsep) if folder)
    return tuple(dict.fromkeys(python for python in (sys.executable, *others) if python))


def _config_list(env: Mapping[str, str]) -> str:
    """Return the output of `pip config list` from the first pip that answers.

    Without a settings file, the output has only the variables, so pip is not run, which would take half a second.
    """
    if not any(path.exists() for path in pip_files(env)):
        names = [name for name in env if name.startswith("PIP_")]
        return "".join(f":env:.{name[4:].lower().replace('_', '-')}={env[name]!r}\n" for name in names)
    reasons: list[str] = []
    for python in _pythons(env):
        try:
            return run([python, "-m", "pip", "config", "list"], env=dict(env), timeout=60).stdout
        except CommandError as error:
            lines = (error.stderr or error.stdout).strip().splitlines()
            # pip may quote a line of the file, which may have a password.
            reasons.append(f"{python}: {shown_text(lines[-1]) if lines else f'status {error.returncode}'}")
    raise UnableError(
        "no pip answers with its settings: " + "; ".join(reasons), hint="install python3-pip or ensurepip"
    )


@dataclass(frozen=True)
class _Value:
    """The value of a pip option, with its section and name."""

    text: str = ""
    section: str = ""
    key: str = ""

    @property
    def origin(self) -> str:
        """Where it is set, for messages."""
        if self.section == ":env:":
            return f"PIP_{self.key.upper().replace('-', '_')}"
        return f"pip's setting {self.section}.{self.key}"


def parse_pip_settings(listing: str, env: Mapping[str, str]) -> PipSettings:
    """Parse the output of `pip config list`: `section.key='value'` lines with values as Python literals.

    Raises `UsageError` with the setting for an invalid URL of an index.
    """
    found: dict[str, _Value] = {}
    for line in listing.splitlines():
        left, equals, literal = line.partition("=")
        section, _, name = left.rpartition(".")
        # pip ignores an empty value.
        if not equals or section not in SECTIONS or not (text := _literal(literal)):
            continue
        key = ALIASES.get(name, name)
        if key not in found or SECTIONS.index(section) >= SECTIONS.index(found[key].section):
            found[key] = _Value(text, section, name)
    values = {key: value.text for key, value in found.items()}
    notes = [note for key, note in NOT_TAKEN.items() if values.get(key, "").strip() not in ("", "0", "false")]
    notes += [note for key in URLS for note in _checked(key, found.get(key, _Value()))]
    return PipSettings(
        index_url=values.get("index-url", "").strip(),
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        cert=values.get("cert", "").strip(),
        client_cert=values.get("client-cert", "").strip(),
        proxy=values.get("proxy", "").strip(),
        timeout=_seconds(values.get("timeout", "")),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        notes=tuple(notes),
        environment_proxies=tuple(env[name] for name in PROXY_VARIABLES if env.get(name)),
    )


def _checked(key: str, value: _Value) -> Iterator[str]:
    """Yield a note for each missing local path in the setting `key`. Raises `UsageError` for an invalid URL."""
    for text in [value.text.strip()] if key == "index-url" and value.text.strip() else value.text.split():
        if "://" not in text and not text.startswith("file:"):
            if Path(text).expanduser().exists():
                continue
            if key != "index-url":
                yield f"warning: {value.origin} names {shown(text)}, which is not there: it is left out"
                continue
        problem = url_problem(text)
        if problem and not text.startswith("file:/"):
            where = "" if value.section == ":env:" else "; `pip config debug` shows the file"
            hint = f"change {value.origin}{where}"
            raise UsageError(f"the address {shown(text)} {problem}", where=value.origin, hint=hint)
        if key != "index-url" and text.startswith("file:") and not Path(file_path(text)).exists():
            yield f"warning: {value.origin} names {shown(text)}, which is not there: it is left out"


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
    """Return the environment for uv: `env` without UV_* variables, plus the host's pip settings.

    Index URLs are in a generated file without credentials; `index_credentials` returns those. `longest` limits the
    time-out of one read, in seconds, because locking only reads small files.
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
    """Return the variables with the credentials of `url` for uv's index `name`."""
    found = url_credentials(url)
    if found is None:
        return {}
    stem = "UV_INDEX_" + "".join(sign if sign.isalnum() else "_" for sign in name.upper())
    return {f"{stem}_USERNAME": found[0], f"{stem}_PASSWORD": found[1]}


@dataclass(frozen=True)
class Downloads:
    """The cache for downloaded files, a function that prints a line for the user, and the host's pip settings.

    The settings are a function, because running pip takes half a second. Without downloads, it is not called.
    """

    cache: Path
    say: Callable[[str], None]
    settings: Callable[[], PipSettings]
