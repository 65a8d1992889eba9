"""The host's pip settings: as pip itself lists them, and the same settings in uv's words.

pip is asked (`python -m pip config list`), so that its own files, environment and precedence count. uv reads none of
them. Credentials are in URLs here; they reach uv by environment only, and `redact` takes them out of any text.
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

# pip's own default, seconds.
PIP_TIMEOUT = 15.0
# Later ones win, as in `pip install`: pip looks at [global], then at the command's section, then at the environment.
SECTIONS = ("global", "install", ":env:")
# Other spellings of an option that pip accepts.
ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url", "extra-index-urls": "extra-index-url"}
URLS = ("index-url", "extra-index-url", "find-links")
NOT_TAKEN = {
    "constraint": "pip's `constraint` setting is ignored: the lock decides versions",
    "no-index": "pip's `no-index` setting is ignored: locking asks the index",
}


# The settings in pip's answer that are kept for the next run. Others may be secret.
TAKEN = {
    *("index-url", "extra-index-url", "find-links", "cert", "client-cert", "proxy", "timeout", "trusted-host"),
    *ALIASES,
    *NOT_TAKEN,
}


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
    # Addresses of this machine's mirrors: their credentials are used and redacted as those of indexes.
    mirrors: tuple[str, ...] = field(default=(), repr=False)
    # Proxies of the environment, only so that their credentials can be redacted.
    environment_proxies: tuple[str, ...] = field(default=(), repr=False)

    @property
    def urls(self) -> tuple[str, ...]:
        """Every URL that may hold credentials, or a token in its query."""
        mine = (self.index_url, *self.extra_index_urls, *self.find_links, self.proxy, *self.environment_proxies)
        mine = (*mine, *self.mirrors)
        return tuple(url for url in mine if "@" in url or "?" in url)

    def credentials(self) -> tuple[str, ...]:
        """Return the secret parts, longest first: `user:password` as written, password (also decoded), query."""
        return secrets_of(self.urls)

    def notes_for(self, *, resolving: bool) -> tuple[str, ...]:
        """Return `notes`; those that matter to a resolver alone only where one runs."""
        return tuple(note for note in self.notes if resolving or note not in NOT_TAKEN.values())

    def redact(self, text: str) -> str:
        """Return `text` with `***` in place of every secret."""
        return redactor(self.credentials())(text)


def read_pip_settings(env: Mapping[str, str], cache: Path | None = None) -> PipSettings:
    """Ask pip for its settings under the environment `env`; its answer is kept in `cache` until a setting changes.

    Raises `UnableError` when no pip answers, `UsageError` for a URL of an index that cannot be one.
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
    """Return where the answer of pip is kept: by a digest of all that it reads."""
    texts: list[object] = []
    for path in pip_files(env):
        try:
            texts.append((str(path), path.read_bytes() if path.exists() else None))
        except OSError as error:  # pip reports it
            texts.append((str(path), error.errno))
    variables = sorted(item for item in env.items() if item[0].startswith("PIP_"))
    return cache / "pip" / sha256_bytes(repr((texts, variables)).encode(errors="surrogateescape"))


def pip_files(env: Mapping[str, str]) -> list[Path]:
    """Return where settings of pip may be, of any version of it (`pip config debug` lists those of one)."""
    home = home_of(env) or Path("/")
    shared = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    folders = [*(Path(one) / "pip" for one in shared), Path("/etc"), home / ".pip"]
    folders.append(Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip")
    folders += [Path(sys.prefix), *(Path(python).parent.parent for python in _pythons(env))]
    named = [Path(env["PIP_CONFIG_FILE"])] if env.get("PIP_CONFIG_FILE") else []
    return [*named, *dict.fromkeys(folder / "pip.conf" for folder in folders)]


def _pythons(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the running Python, then each python3 on PATH: the first may be of an environment without pip."""
    others = (shutil.which("python3", path=folder) for folder in env.get("PATH", "").split(os.pathsep) if folder)
    return tuple(dict.fromkeys(python for python in (sys.executable, *others) if python))


def _config_list(env: Mapping[str, str]) -> str:
    """Return what `pip config list` prints, of the first pip that answers.

    Without a file of settings that is the variables alone, and pip, which takes half a second, is not asked.
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
            # pip quotes the line of a file that it cannot read.
            reasons.append(f"{python}: {shown_text(lines[-1]) if lines else f'status {error.returncode}'}")
    raise UnableError(
        "no pip answers with its settings: " + "; ".join(reasons), hint="install python3-pip or ensurepip"
    )


@dataclass(frozen=True)
class _Value:
    """What pip has for an option, in which section, under which name."""

    text: str = ""
    section: str = ""
    key: str = ""

    @property
    def origin(self) -> str:
        """Where it is named."""
        if self.section == ":env:":
            return f"PIP_{self.key.upper().replace('-', '_')}"
        return f"pip's setting {self.section}.{self.key}"


def parse_pip_settings(listing: str, env: Mapping[str, str]) -> PipSettings:
    """Read what `pip config list` printed: `section.key='value'` lines, values as Python literals.

    Raises `UsageError`, which names the setting, for a URL of an index that cannot be one.
    """
    found: dict[str, _Value] = {}
    for line in listing.splitlines():
        left, equals, literal = line.partition("=")
        section, _, name = left.rpartition(".")
        # pip passes over an empty value.
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
    """Yield a note for each local path of the setting `key` that is not there; raise `UsageError` for a broken URL."""
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


@dataclass(frozen=True)
class Downloads:
    """Where downloaded files are kept, how a line is printed for the user, and the host's pip settings.

    The settings are a function, since asking pip takes half a second: a cache that has every file does not ask.
    """

    cache: Path
    say: Callable[[str], None]
    settings: Callable[[], PipSettings]
