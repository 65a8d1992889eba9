"""URLs of indexes and proxies as users write them: what may be shown, what is secret, what is wrong.

People write passwords with `/`, `#`, `?` or `@` in them, forget the scheme, or leave a bracket open. A URL parser then
sees no password, and the rest of the program would print it. So texts are made without one: everything between the
scheme (or the start) and the last `@` is taken for a user's.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from cannery.util.redact import MASK

INDEX_SCHEMES = ("http", "https", "file")
PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")
_AUTHORITY_END = re.compile(r"[/?#\\]")
# A port that is no number may be a password whose `@` was forgotten.
_ODD_PORT = re.compile(r"^((?:\[[^\]/?#]*\]|(?!\[))[^:/?#]*):(?!\d*(?:[/?#]|$))[^/?#]*")
# A host that no user name looks like: `https://host.example/feed@view/simple` is such an index's.
_PLAIN_HOST = re.compile(r"(?:[\w-]+(?:\.[\w-]+)+|localhost|\[[0-9A-Fa-f:.]+\])(?::\d+)?")
# What is shorter is a part of every other word, and masking it would leave no message.
LONG_ENOUGH = 4
ENCODE = "percent-encode the signs of a password: / is %2F, # is %23, ? is %3F, @ is %40"


class _Parts(NamedTuple):
    """`user` is what is taken for a user's, "" for none; `is_odd` where a URL parser would not find it."""

    scheme: str
    user: str
    rest: str
    is_odd: bool


def _parts(url: str) -> _Parts:
    match = _SCHEME.match(url)
    scheme, rest = (match[1], url[match.end() :]) if match else ("", url)
    if (scheme.lower() == "file" and rest.startswith("/")) or (not scheme and rest.startswith(("/", ".", "~"))):
        return _Parts(scheme, "", rest, is_odd=False)
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0]
    user, at, behind = rest.rpartition("@")
    if not at:
        return _Parts(scheme, "", rest, is_odd=False)
    return _Parts(scheme, user, behind, is_odd=not scheme or len(user) >= len(authority))


def _is_plain(url: str) -> bool:
    """Whether an `@` in `url` comes after a host that is clearly one."""
    match = _SCHEME.match(url)
    return bool(match and _PLAIN_HOST.fullmatch(_AUTHORITY_END.split(url[match.end() :], maxsplit=1)[0]))


def shown(url: str) -> str:
    """Return `url` as messages have it: without what may be a user's, a query (it may be a token) or an odd port."""
    scheme, _user, rest, is_odd = _parts(url)
    if scheme.lower() == "file" and rest.startswith("/"):
        return url
    rest = _ODD_PORT.sub(rf"\1:{MASK}", rest) if scheme else rest
    head, question, _query = rest.partition("?")
    mark = f"{MASK}@" if is_odd and scheme else ""
    return f"{scheme}{'://' if scheme else ''}{mark}{head}{question}{MASK if question else ''}"


def shown_text(text: str) -> str:
    """Return a text of another program about URLs: of every word with an `@`, what comes before the last is cut."""
    return re.sub(r"\S+@", f"{MASK}@", text)


def without_credentials(url: str) -> str:
    """Return `url`, which has no `url_problem`, without its `user:password@`, for a program to connect to."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else url


def url_credentials(url: str) -> tuple[str, str] | None:
    """Return (user, password) of a URL, decoded; None when it holds none, or is no URL."""
    user, at, _host = url_host(url).rpartition("@")
    name, _, password = user.partition(":")
    return (unquote(name), unquote(password)) if at else None


def url_host(url: str) -> str:
    """Return `user:password@host:port` of a URL, as far as it has them; "" for what is no URL."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def file_path(url: str) -> str:
    """Return the path of a `file:` URL."""
    return unquote(urlsplit(url).path)


def url_secrets(url: str) -> frozenset[str]:
    """Return what of `url` no output may hold: `user:password` as written, the password (also decoded), the query."""
    _scheme, user, rest, is_odd = _parts(url)
    if is_odd and _is_plain(url):
        user, rest = "", url
    # A token may be in the user's place, without a password.
    password = user.partition(":")[2] or user
    query = rest.partition("?")[2].partition("#")[0]
    # Where nobody can tell the user from the password (`http:/user:password@host`), each colon may be the one between.
    tails = [user[at + 1 :] for at, sign in enumerate(user) if sign == ":"] if is_odd else []
    longer = {tail for tail in tails if len(tail) >= LONG_ENOUGH}
    return frozenset({user, password, unquote(password), query, *longer, *map(unquote, longer)} - {""})


def url_problem(url: str, schemes: tuple[str, ...] = INDEX_SCHEMES) -> str:
    """Say why nothing can be reached under `url`, without any part of it that may be secret; "" when all is well."""
    match = _SCHEME.match(url)
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
