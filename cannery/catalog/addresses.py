"""Where files come from: package indexes, git hosts and registries of the catalog, and published hashes of wheels.

Catalog files are committed, so an address must not have credentials. They belong in the settings of the host: pip's
settings, git's credential helper, `docker login`. Messages do not show an address that may have credentials.

If an index cannot be reached, a lock takes its hashes from images/hashes.yaml. A wrong hash there can only stop a
build, because each download is compared with it.
"""

import re
from collections.abc import Collection
from typing import Annotated
from urllib.parse import urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import Field

from cannery.catalog.component import Closed
from cannery.catalog.errors import FaultError
from cannery.catalog.fields import DateText, OsText, Sha256Text, Text, once, parsed
from cannery.errors import UsageError
from cannery.util.addresses import parse_reference

REPOSITORY = "{repository}"
# `git@host:path`, as ssh writes it. The user name is not secret. ssh would read a leading - as an option.
SCP = re.compile(r"(?!-)[A-Za-z0-9_.-]+@(?!-)[A-Za-z0-9.-]+:[^\s@:?#]+")
SSH_USER = re.compile(r"(?<=^ssh://)(?!-)[A-Za-z0-9_.-]+@")
HOST = re.compile(r"(?!-)[\w.-]+|\[[0-9A-Fa-f:.]+\]")
CREDENTIALS = "the address has credentials in it, or an @ that looks like them"
INDEX_HINT = "leave them out here, and put them into the pip settings of the host (or its netrc); an @ in a path is %40"
GIT_HINT = "leave them out here, and put them into git's credential helper of the host; an @ in a path is %40"
REGISTRY_HINT = "leave them out here, and use `docker login` on the host"


def checked_url(text: str, schemes: Collection[str], example: str) -> None:
    """Raise `FaultError` unless `text` is a URL with one of `schemes`, a host (except for `file`), and only a path."""
    fault = FaultError(f"{text!r} is not a URL", f"written like {example}")
    if not text.isprintable() or re.search(r"\s", text):
        raise fault
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises for an invalid port
    except ValueError as error:
        raise FaultError(f"{text!r} is not a URL: {error}", f"written like {example}") from error
    if parts.scheme not in schemes:
        raise FaultError(f"{text!r} is not a URL of {' or '.join(schemes)}", f"written like {example}")
    host = parts.netloc.rpartition(":")[0] if re.search(r":\d*$", parts.netloc) else parts.netloc
    if parts.scheme == "file" and not (parts.path.startswith("/") and parts.netloc in {"", "localhost"}):
        raise FaultError(f"{text!r} names no absolute path", "a file's URL is file:///folder")
    if parts.scheme != "file" and not HOST.fullmatch(host):
        raise fault
    if "?" in text or "#" in text:
        raise FaultError(
            f"{text.partition('?')[0].partition('#')[0]!r} has a query or a fragment behind it", "leave it out"
        )


def _index_url(value: str) -> str:
    if "@" in value:
        raise FaultError(CREDENTIALS, INDEX_HINT)
    if ".whl" in value:
        raise FaultError("this is the URL of a wheel, and no index", "put the wheel into a folder named by WHEELHOUSE")
    checked_url(value, ("https", "http", "file"), "https://host/simple")
    return value


def host_url(value: str) -> str:
    """Return the URL template of a git host. Raises `FaultError` if it is invalid or has credentials."""
    is_scp = SCP.fullmatch(value.replace(REPOSITORY, "r"))
    plain = value if is_scp else SSH_USER.sub("", value)
    if "@" in plain and not is_scp:
        raise FaultError(CREDENTIALS, GIT_HINT)
    example = f"https://host/{REPOSITORY}.git"
    if re.findall(r"\{[^{}]*\}|[{}]", value) != [REPOSITORY]:
        what = f"{value!r} has to contain {REPOSITORY} once, for owner/name, and no other braces"
        raise FaultError(what, f"written like {example}")
    if not is_scp:
        checked_url(plain.replace(REPOSITORY, "owner/name"), ("https", "http", "ssh", "file"), example)
    return value


def _registry(value: str) -> str:
    if "@" in value or "://" in value:
        raise FaultError(
            "a repository of a registry is a host and a path, without scheme and credentials", REGISTRY_HINT
        )
    try:
        parse_reference(f"{value}:tag")
    except UsageError as error:
        raise FaultError(
            f"{value!r} is not a repository of a registry", "written like registry.example/ascend/cann"
        ) from error
    return value


def reference_fault(text: str) -> str:
    """Return why a user's image reference is refused, or "". The text has no part of it that may be secret.

    A reference must not have a scheme, credentials, or a query (which may have a token).
    """
    named, _, digest = text.rpartition("@")
    if "://" in text:
        return "an image reference has no scheme (https://)" + ("" if "@" not in text else " and no credentials")
    if "?" in text or "#" in text:
        return "an image reference has no query or fragment (? or #)"
    return "" if "@" not in text or (digest.startswith("sha256:") and "@" not in named) else "it has credentials in it"


IndexUrl = Annotated[str, parsed(_index_url)]
HostUrl = Annotated[str, parsed(host_url)]
RegistryText = Annotated[str, parsed(_registry)]


class Index(Closed):
    """A package index that components name: its URLs, in the order in which they are tried.

    `pages` are mirrors in the form of one page of links; they are tried first. `public_pages` are such mirrors that
    messages suggest; they are only used if the user sets them. An index without a URL gets its wheels from files of
    the user (WHEELHOUSE, find-links).
    """

    urls: tuple[IndexUrl, ...]
    pages: tuple[IndexUrl, ...] = ()
    public_pages: tuple[IndexUrl, ...] = ()
    note: Text = ""


class Host(Closed):
    """A git host: the URL of its repositories, with `{repository}` for `owner/name`. `mirrors` are tried first."""

    url: HostUrl
    mirrors: tuple[HostUrl, ...] = ()


class Registries(Closed):
    """Where CANN images are published: full repositories, in the order in which they are tried."""

    repositories: tuple[RegistryText, ...] = Field(min_length=1)
    # By OS, if its images are in other repositories.
    by_os: dict[OsText, tuple[RegistryText, ...]] = Field(default_factory=dict)
    source: Text

    def of(self, os: str) -> tuple[str, ...]:
        """Return the repositories of the images with `os`."""
        return self.by_os.get(os) or self.repositories


def _wheel(text: str) -> str:
    try:
        parse_wheel_filename(text)
    except InvalidWheelFilename as error:
        raise FaultError(
            f"{text!r} is not the name of a wheel: {error}", "written like six-1.0-py3-none-any.whl"
        ) from error
    return text


class PublishedFile(Closed):
    """A wheel, its sha256, its size (0: not published), and how many independent places publish that hash."""

    file: Annotated[str, parsed(_wheel)]
    sha256: Sha256Text
    size: int = Field(default=0, ge=0)
    seen: int = Field(default=1, ge=1)
    note: Text = ""


class Published(Closed):
    """The published hashes of files on one index, with their source and date."""

    source: Text = Field(min_length=8)
    date: DateText
    files: Annotated[tuple[PublishedFile, ...], once(lambda one: one.file)]
