"""Settings of this host that a build step needs and an image must not keep: CA bundle, proxies, mirrors, jobs.

BuildKit gets them as secrets. Each has an id and a variable with the path of its file (`render.SECRETS`). So no path of
this host is in a rendered file, and nothing of them stays in a layer or in BuildKit's history. The files are removed
after the build.
"""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cannery.errors import UsageError
from cannery.render.render import NO_SECRET, SECRETS
from cannery.standin.io.apt import distribution_sources, host_release, source_lines
from cannery.util.io.locks import own_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.util.io.pip_settings import PipSettings

# BuildKit refuses a secret of more than 500 KiB (its MaxSecretSize).
MAX_SECRET = 500 * 1024
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Secrets:
    """Environment variables for the build, and the values that must not be in a log."""

    env: Mapping[str, str]
    values: tuple[str, ...]


NO_SECRETS = Secrets({}, ())


@contextmanager
def host_secrets(
    cache: Path, env: Mapping[str, str], pip: PipSettings, suite: str | None, system: Mapping[str, Sequence[str]]
) -> Iterator[Secrets]:
    """Yield the secrets of this host while a build runs.

    `suite` is the Debian suite of the base, None for a base with its own sources; `system` are mirrors for those.
    The files are in the cache, readable by their owner only. Raises `UsageError` if the host's CA bundle cannot be
    read, or MAX_JOBS is not a number.
    """
    jobs = env.get("MAX_JOBS", "")
    if jobs and not re.fullmatch(r"[1-9]\d{0,3}", jobs):
        raise UsageError(f"MAX_JOBS: {jobs!r} is not a number of jobs", hint="1 to 9999, or unset it")
    with own_folder(cache / "secrets") as folder:
        mirrors = distribution_sources(host_release()) if suite else ()
        proxies = {name: value for name in PROXIES if (value := env.get(name) or env.get(name.upper()))}
        texts = {
            "apt_sources": source_lines(suite, mirrors) if suite else "",
            "proxies": "".join(f"export {name}={shlex.quote(value)}\n" for name, value in proxies.items()),
            "system_mirrors": _script({name: places[0] for name, places in system.items()}),
            "jobs": jobs,
        }
        found = {SECRETS["ca"]: _ca(env, pip), **dict.fromkeys((SECRETS[name] for name in texts), NO_SECRET)}
        for name, text in texts.items():
            if text:
                path = folder / name
                path.touch(0o600)
                path.write_text(text, encoding="utf-8")
                found[SECRETS[name]] = str(path)
        urls = [*proxies.values(), *(uri for mirror in mirrors for uri in mirror.uris)]
        passwords = [urlsplit(url if "://" in url else f"http://{url}").password for url in urls]
        yield Secrets(found, tuple(p for p in (*passwords, *pip.credentials()) if p))


def _script(mirrors: Mapping[str, str]) -> str:
    """Return the sed script that puts mirrors into the sources of apt or dnf, the longest address first."""
    lines = []
    for name in sorted(mirrors, key=lambda name: (-len(name), name)):
        wanted, place = name.rstrip("/"), re.sub(r"[&|\\]", r"\\\g<0>", mirrors[name].rstrip("/"))
        pattern = re.sub(r"[.*+~]", r"[\g<0>]", wanted)
        # A name ends here, or a folder: http://a.example must not match http://a.example.org.
        lines += [rf"s|{pattern}\([/ ]\)|{place}\1|g", rf"s|{pattern}$|{place}|"]
    return "".join(f"{line}\n" for line in lines)


def _ca(env: Mapping[str, str], pip: PipSettings) -> str:
    """Return the path of the host's CA bundle: pip's `cert`, else that of the usual variables."""
    named = pip.cert or next((v for n in CA_VARIABLES if (v := env.get(n))), "")
    if not named:
        return NO_SECRET
    try:
        size = len(Path(named).read_bytes())
    except OSError as error:
        hint = "see `pip config list` and SSL_CERT_FILE"
        raise UsageError(f"the CA bundle cannot be read: {error}", hint=hint) from error
    if size > MAX_SECRET:
        hint = "name a bundle of your own mirror's certificates alone: `pip config set global.cert FILE`"
        what = f"the CA bundle is larger than BuildKit allows ({MAX_SECRET >> 10} KiB)"
        raise UsageError(what, where=named, hint=hint)
    return str(Path(named).absolute())
