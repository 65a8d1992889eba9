"""Addresses that users write (URLs of indexes and proxies, image references), and the masking of secrets in texts.

Users write passwords with `/`, `#`, `?` or `@` in them, forget the scheme, or leave a bracket open. A URL parser then
finds no password, and the program would print it. So everything between the scheme (or the start) and the last `@`
counts as credentials. All texts for a screen, a log or an error are masked here first.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MASK = "***"
# Patterns are texts here: `re` compiles them on first use, and most runs never need them.
# Everything between the scheme and the last @ before the path, because a password may have an @. After `user:`, a
# password may also have characters that end a host. Text that begins like a port is not a password: the path may have
# an @.
_USERINFO = r"(://)(?:[^/\s\"'<>]+@|[^/\s:@\"'<>]+:(?!\d{1,5}(?:[/?#\s]|$))\S*@)"
# `user:password@host` without a scheme, as for a proxy or a registry. The @ in an image reference (before a digest) and
# in a package URL (before a version) does not count.
_PACKAGE_URL = r"pkg:(?:deb|docker|generic|github|pypi|rpm)/"
_BARE_USERINFO = rf"(?<![\w.+~%@/-])(?!{_PACKAGE_URL})[\w.+~%-]+:(?!//)[^\s\"'<>]+@(?!sha\d+:)(?=[\w\[])"
# A user in a web address, or a user and a password in any URL. A password may have characters that end a host.
CREDENTIALS = re.compile(r"https?://[^/\s]*@|://[^/\s:@]*:(?!\d{1,5}(?:[/?#]|$))\S*@")
# Shorter secrets are part of many words. They are only masked in URLs.
_SHORTEST = 3
# Shorter lines of a multi-line secret ("}", "EOF") are not secret, and would mask half the log.
_SHORTEST_LINE = 6
# All control characters except tab and line feed (a carriage return overwrites a line), line separators, and characters
# that change the writing direction.
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
INDEX_SCHEMES = ("http", "https", "file")
PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
_SCHEME = r"\s*([A-Za-z][A-Za-z0-9+.-]*)://"
_AUTHORITY_END = r"[/?#\\]"
# A port that is not a number may be a password whose `@` was forgotten.
_ODD_PORT = r"^((?:\[[^\]/?#]*\]|(?!\[))[^:/?#]*):(?!\d*(?:[/?#]|$))[^/?#]*"
# A host that cannot be a user name, as in the index `https://host.example/feed@view/simple`.
_PLAIN_HOST = r"(?:[\w-]+(?:\.[\w-]+)+|localhost|\[[0-9A-Fa-f:.]+\])(?::\d+)?"
# Shorter texts are part of many words, and masking them would hide the message.
LONG_ENOUGH = 4
ENCODE = "percent-encode the signs of a password: / is %2F, # is %23, ? is %3F, @ is %40"
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def redactor(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Return a function that masks `secrets` and the user part of URLs in a text.

    A secret with several lines (a key, a netrc) is masked line by line, because logs are printed by line. A secret is
    also masked in its percent-encoded form (as in URLs) and with JSON escapes.
    """
    pieces: set[str] = set()
    for secret in secrets:
        stripped = secret.strip()
        lines = [line.strip() for line in stripped.splitlines()]
        wanted = [stripped] if len(lines) <= 1 else [line for line in lines if len(line) >= _SHORTEST_LINE]
        pieces.update(piece for one in wanted if len(one) >= _SHORTEST for piece in _forms(one))
    # Longest first, so that a secret that begins with a shorter one is masked completely.
    pattern = "|".join(re.escape(p) for p in sorted(pieces, key=lambda p: (-len(p), p)))
    compiled = re.compile(pattern) if pattern else None

    def redact(text: str) -> str:
        masked = compiled.sub(MASK, text) if compiled else text
        return re.sub(_BARE_USERINFO, f"{MASK}@", re.sub(_USERINFO, rf"\1{MASK}@", masked)) if "@" in masked else masked

    return redact


def _forms(secret: str) -> tuple[str, ...]:
    """Return the forms of a secret: plain, in URLs, in JSON (also TOML and logs), and in Python."""
    escaped = (json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    # Python's repr escapes a quote if the text also has the other kind.
    written = (repr(secret)[1:-1], repr(f'"{secret}')[2:-1])
    return (secret, quote(secret, safe=""), *escaped, *written)


def plain(text: str) -> str:
    r"""Return `text` with `\uXXXX` for each control character, which JSON reads as the same character."""
    return re.sub(_CONTROL, lambda found: f"\\u{ord(found[0]):04x}", text)


class _Parts(NamedTuple):
    """The parts of a URL. `user` is what counts as credentials, or "". `is_odd`: a URL parser would not find them."""

    scheme: str
    user: str
    rest: str
    is_odd: bool


def _parts(url: str) -> _Parts:
    match = re.match(_SCHEME, url)
    scheme, rest = (match[1], url[match.end() :]) if match else ("", url)
    if (scheme.lower() == "file" and rest.startswith("/")) or (not scheme and rest.startswith(("/", ".", "~"))):
        return _Parts(scheme, "", rest, is_odd=False)
    authority = re.split(_AUTHORITY_END, rest, maxsplit=1)[0]
    user, at, behind = rest.rpartition("@")
    if not at:
        return _Parts(scheme, "", rest, is_odd=False)
    return _Parts(scheme, user, behind, is_odd=not scheme or len(user) >= len(authority))


def _is_plain(url: str) -> bool:
    """Whether `url` begins with a clear host, so that an `@` comes after it."""
    match = re.match(_SCHEME, url)
    return bool(match and re.fullmatch(_PLAIN_HOST, re.split(_AUTHORITY_END, url[match.end() :], maxsplit=1)[0]))


def shown(url: str) -> str:
    """Return `url` for messages: without possible credentials, query (which may be a token) and invalid port."""
    scheme, _user, rest, is_odd = _parts(url)
    if scheme.lower() == "file" and rest.startswith("/"):
        return url
    rest = re.sub(_ODD_PORT, rf"\1:{MASK}", rest) if scheme else rest
    head, question, _query = rest.partition("?")
    mark = f"{MASK}@" if is_odd and scheme else ""
    return f"{scheme}{'://' if scheme else ''}{mark}{head}{question}{MASK if question else ''}"


def shown_text(text: str) -> str:
    """Return a message of another program about URLs, with the part before the last `@` of each word masked."""
    return re.sub(r"\S+@", f"{MASK}@", text)


def without_credentials(url: str) -> str:
    """Return `url` (which has no `url_problem`) without its `user:password@`."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else url


def url_credentials(url: str) -> tuple[str, str] | None:
    """Return (user, password) of a URL, decoded; None if it has none or is not a URL."""
    user, at, _host = url_host(url).rpartition("@")
    name, _, password = user.partition(":")
    return (unquote(name), unquote(password)) if at else None


def url_host(url: str) -> str:
    """Return the `user:password@host:port` part of a URL; "" for any other text."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def file_path(url: str) -> str:
    """Return the path of a `file:` URL."""
    return unquote(urlsplit(url).path)


def url_secrets(url: str) -> frozenset[str]:
    """Return the secret parts of `url`: `user:password` as written, the password (also decoded), the query."""
    _scheme, user, rest, is_odd = _parts(url)
    if is_odd and _is_plain(url):
        user, rest = "", url
    # A token may replace the user, without a password.
    password = user.partition(":")[2] or user
    query = rest.partition("?")[2].partition("#")[0]
    # In an odd URL (`http:/user:password@host`), any colon may separate user and password.
    tails = [user[at + 1 :] for at, sign in enumerate(user) if sign == ":"] if is_odd else []
    longer = {tail for tail in tails if len(tail) >= LONG_ENOUGH}
    return frozenset({user, password, unquote(password), query, *longer, *map(unquote, longer)} - {""})


def url_problem(url: str, schemes: tuple[str, ...] = INDEX_SCHEMES) -> str:
    """Return why `url` is not valid, without any part of it that may be secret; "" if it is valid."""
    match = re.match(_SCHEME, url)
    if not match:
        return f"has no scheme, as in {schemes[1]}://HOST/…"
    if match[1].lower() not in schemes:
        return f"has a scheme that is none of {', '.join(schemes)}"
    if _parts(url).is_odd and not _is_plain(url):
        return "has an @ behind a /, # or ? that ends the host; " + ENCODE
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "has a host or port that cannot be read; " + ENCODE
    if re.search(r"[\s\\]", url.strip()):
        return "has a blank or backslash in it; percent-encode it"
    return "" if parts.hostname or parts.scheme == "file" else "names no host"


def secrets_of(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the secret parts of addresses, the longest first, so that each is masked completely."""
    found = {secret for url in urls for secret in url_secrets(url)}
    return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))


def environment_secrets(env: Mapping[str, str], more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the secret parts of the addresses in `env` and in `more`, without running pip."""
    heads = ("PIP_", "CANNERY_MIRROR_")
    names = [name for name in env if name in PROXY_VARIABLES or (name.startswith(heads) and "://" in env[name])]
    words = [word for name in names for word in env[name].split()]
    # `NAME=ADDRESS` of a mirror.
    return secrets_of((*(word.partition("=")[2] if "=" in word.partition("://")[0] else word for word in words), *more))


DEFAULT_REGISTRY = "docker.io"
# Labels of an image that name its base.
BASE_NAME, BASE_DIGEST = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")


def digest_of(data: bytes) -> str:
    """Return the digest of bytes as in registries and engines: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


# The most characters of registry and repository together, as in engines.
LONGEST = 255
LAST_PORT = 65535


@dataclass(frozen=True)
class ImageReference:
    """A full image reference. For docker.io, a `repository` without a folder begins with `library/`."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    @property
    def wanted(self) -> str:
        """The digest if there is one, else the tag, as in requests to a registry."""
        return self.digest or self.tag

    @property
    def name(self) -> str:
        """The repository with its registry, `host/path`."""
        return f"{self.registry}/{self.repository}"


def parse_reference(text: str, option: str = "BASE") -> ImageReference:
    """Parse an image reference. The default tag is `latest`. Raises `UsageError` for an invalid one."""
    named, at, digest = text.partition("@")
    registry = registry_of(named)
    path = named.removeprefix(f"{registry}/")
    repository, colon, tag = path.partition(":")
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if len(named) - len(colon + tag) > LONGEST:
        raise UsageError(f"{option}: a name with over {LONGEST} letters is not an image reference", hint="shorten it")
    port = registry.rpartition(":")[2] if re.search(r":\d+$", registry) else "0"
    good = _REGISTRY.fullmatch(registry) and int(port) <= LAST_PORT and _REPOSITORY.fullmatch(repository)
    if not good or (colon and not _TAG.fullmatch(tag)) or (at and not DIGEST.fullmatch(digest)):
        hint = "[registry/]repository[:tag], in lower case but for the tag; a digest is @sha256: and 64 hex digits"
        raise UsageError(f"{option}: {text!r} is not an image reference", hint=hint)
    return ImageReference(registry, repository, tag or "latest", digest or None)


def registry_of(reference: str) -> str:
    """Return the registry of an image reference. A first part without dot or colon, except localhost, is not a host."""
    first, slash, _rest = reference.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DEFAULT_REGISTRY


def split_digest(reference: str) -> tuple[str, str | None]:
    """Return a reference without its digest, and the digest (`sha256:…`) or None."""
    named, _at, digest = reference.partition("@")
    return named, digest or None


def split_tag(reference: str) -> tuple[str, str]:
    """Return the name and the tag of a reference that has a tag and no digest."""
    named, _colon, tag = reference.rpartition(":")
    return named, tag


def pinned(reference: str, digest: str | None) -> str:
    """Return the reference with `digest` instead of its own; unchanged if `digest` is None."""
    return f"{split_digest(reference)[0]}@{digest}" if digest else reference


def mirrored(reference: str, mirrors: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the references on mirrors for the image `reference`, best first; empty if it has no mirror.

    `mirrors` is {registry, or repository or folder in one: its mirrors}. The longest key that fits counts.
    """
    found = parse_reference(reference)
    named, digest = split_digest(reference)
    tag = f":{found.tag}" if ":" in named.rpartition("/")[2] or not digest else ""
    name = found.name
    key = max((key for key in mirrors if name == key or name.startswith(f"{key}/")), key=len, default=None)
    if key is None:
        return ()
    behind = f"{name.removeprefix(key)}{tag}{f'@{digest}' if digest else ''}"
    return tuple(f"{mirror}{behind}" for mirror in mirrors[key])


def is_loopback(registry: str) -> bool:
    """Whether a registry (host with port) is on this machine. Docker also uses it without TLS."""
    host = registry.rpartition(":")[0] if re.search(r":\d+$", registry) else registry
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
