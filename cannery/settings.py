"""Settings of this machine, in TOML files and variables: where images, packages and sources come from.

They do not change an image: no plan, tag or layer depends on a mirror.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cannery.catalog.addresses import host_url, reference_fault
from cannery.catalog.errors import FaultError
from cannery.errors import UsageError
from cannery.util.addresses import parse_reference, shown, url_problem
from cannery.vocab import DEFAULT_INDEX, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cannery.catalog.catalog import Catalog

MIRRORS = "mirrors"
# Settings with one value: {name: meaning}. Each is also a variable CANNERY_<NAME>.
VALUES = {
    "cache": "where wheels, sources and layers are kept",
    "catalog": "a folder of your profiles and components",
    "registry": "where images are pushed to and pulled from",
    "builder": "a buildx builder of yours",
    "wheelhouse": "a folder of your wheels",
    "git-mirror": "a folder of git repositories, instead of the network",
    "patches": "a folder of your patch sets",
}
FOLDERS = frozenset({"cache", "catalog", "wheelhouse", "git-mirror", "patches"})
# Tables of mirrors: {kind: what its names are}. Each is also a variable CANNERY_MIRROR_<KIND> of words NAME=ADDRESS.
KINDS = {
    "registry": "a registry, or a repository of one, as quay.io",
    "index": "an index of images/indexes.yaml, or default",
    "pages": "an index of images/indexes.yaml, whose mirror is a plain page of links",
    "git": "a host of images/hosts.yaml",
    "system": "an address in the apt or dnf sources of a base",
}
EXAMPLE = 'written like registry = "registry.example/team", or [mirrors.registry] and "quay.io" = "mirror.example/quay"'


@dataclass(frozen=True)
class Setting:
    """The values of a setting, in the order in which they are tried, and where they were read."""

    texts: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class Settings:
    """All settings: {`registry`: …, `mirrors.registry.quay.io`: …}."""

    found: Mapping[str, Setting] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return the value of a setting, or ""."""
        return self.found[name].texts[0] if name in self.found else ""

    def mirrors(self, kind: str) -> dict[str, tuple[str, ...]]:
        """Return {name: its mirrors, best first} of one kind."""
        head = f"{MIRRORS}.{kind}."
        return {name.removeprefix(head): one.texts for name, one in self.found.items() if name.startswith(head)}

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all mirrors, which may hold credentials."""
        return tuple(text for name, one in self.found.items() if name.startswith(MIRRORS) for text in one.texts)

    def rows(self, cache: str) -> tuple[tuple[str, str, str], ...]:
        """Return (name, value without secrets, where it was read) of all settings, also of those that are not set.

        `cache` is the cache folder in use.
        """
        known = dict.fromkeys(VALUES, Setting((), "not set")) | {"cache": Setting((cache,), "the default")}
        known |= dict(self.found)
        return tuple((name, " ".join(map(shown, one.texts)), one.origin) for name, one in known.items())


def merged(layers: Sequence[Mapping[str, Setting]]) -> Settings:
    """Return the settings of all `layers`; an earlier layer overrides a later one."""
    found: dict[str, Setting] = {}
    for layer in reversed(layers):
        found |= layer
    return Settings(found)


def of_environment(env: Mapping[str, str]) -> dict[str, Setting]:
    """Read the variables CANNERY_<NAME> and CANNERY_MIRROR_<KIND>. Raises `UsageError` with the variable's name."""
    found = {}
    for name in VALUES:
        variable = variable_of(name)
        if env.get(variable):
            found[name] = Setting((env[variable],), variable)
    for kind, words in KINDS.items():
        variable = f"CANNERY_MIRROR_{kind.upper()}"
        table: dict[str, list[str]] = {}
        for word in env.get(variable, "").split():
            name, equals, address = word.partition("=")
            if not (name and equals and address):
                hint = f"words NAME=ADDRESS, where NAME is {words}"
                raise UsageError(f"{shown(word)!r} is not NAME=ADDRESS", where=variable, hint=hint)
            table.setdefault(name, []).append(address)
        found |= _mirrors(kind, table, variable)
    return found


def variable_of(name: str) -> str:
    """Return the variable of a setting with one value."""
    return f"CANNERY_{name.upper().replace('-', '_')}"


def of_file(document: Mapping[str, object], where: str, place: Callable[[str], str]) -> dict[str, Setting]:
    """Return the settings of a file; `place` makes a folder in it absolute. Raises `UsageError` with the file's name.

    An unknown setting or a value of another type is an error, since a mirror must not be silently unused.
    """
    found: dict[str, Setting] = {}
    for name, value in document.items():
        if name == MIRRORS:
            found |= _tables(value, where)
        elif name not in VALUES:
            raise UsageError(f"{name!r} is not a setting", where=where, hint=did_you_mean(name, {*VALUES, MIRRORS}))
        elif not isinstance(value, str) or not value.strip():
            raise UsageError(f"{name} is not a text", where=where, hint=EXAMPLE)
        else:
            found[name] = Setting((place(value) if name in FOLDERS else value,), where)
    return found


def _tables(value: object, where: str) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for kind, table in _table(value, MIRRORS, where).items():
        if kind not in KINDS:
            what = f"{MIRRORS}.{kind} is not a table of mirrors"
            raise UsageError(what, where=where, hint=did_you_mean(kind, KINDS))
        found |= _mirrors(kind, _table(table, f"{MIRRORS}.{kind}", where), where)
    return found


def _table(value: object, name: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} is not a table", where=where, hint=EXAMPLE)
    return value


def _mirrors(kind: str, table: Mapping[str, Any], where: str) -> dict[str, Setting]:
    found = {}
    for name, value in table.items():
        texts = tuple(value) if isinstance(value, list) else (value,)
        if not texts or not all(isinstance(text, str) for text in texts):
            what = f"{MIRRORS}.{kind}.{name} is neither an address nor a list of addresses"
            raise UsageError(what, where=where, hint=EXAMPLE)
        for text in texts:
            if fault := _fault(kind, name, text):
                raise UsageError(f"{MIRRORS}.{kind}.{name}: {fault}", where=where, hint=f"a name is {KINDS[kind]}")
        found[f"{MIRRORS}.{kind}.{name}"] = Setting(texts, where)
    return found


def _fault(kind: str, name: str, address: str) -> str:
    """Return why an address cannot be a mirror of `name`, without secrets in it, or ""."""
    if kind == "registry":
        return _reference_fault(name) or _reference_fault(address)
    if kind == "git":
        try:
            host_url(address)
        except FaultError as error:
            return error.what if "@" not in address else "the address has credentials in it"
        return ""
    if kind == "system" and not re.fullmatch(r"https?://[\w.:/~+-]+", name):
        return "the name is not an http address"
    if kind == "system" and not re.fullmatch(r"https?://[\w.:/~+@%-]+", address):
        return "the address is not an http address"
    problem = url_problem(address)
    if kind in {"index", "pages"} and ".whl" in address:
        problem = "is that of a wheel, and no index; put the wheel into a folder named by WHEELHOUSE"
    return f"the address {shown(address)} {problem}" if problem else ""


def _reference_fault(text: str) -> str:
    if fault := reference_fault(text):
        return fault
    host, slash, path = text.partition("/")
    if not ("." in host or ":" in host or host == "localhost"):
        return f"{text!r} does not begin with the host of a registry"
    try:
        parse_reference(f"{host}/{path}" if slash else f"{host}/x", "mirror")
    except UsageError:
        return f"{text!r} is not a registry or a repository of one"
    return "" if ":" not in path and "@" not in path else f"{text!r} has a tag or a digest"


def with_mirrors(catalog: Catalog, settings: Settings) -> Catalog:
    """Return `catalog` with this machine's mirrors before its indexes and hosts.

    Raises `UsageError` for a mirror of an index or host that the catalog does not have.
    """
    indexes, hosts = dict(catalog.indexes), dict(catalog.hosts)
    for kind, known, where in (
        ("index", {*indexes, DEFAULT_INDEX}, "images/indexes.yaml"),
        ("pages", {*indexes}, "images/indexes.yaml"),
        ("git", {*hosts}, "images/hosts.yaml"),
    ):
        for name in settings.mirrors(kind):
            if name not in known:
                origin = settings.found[f"{MIRRORS}.{kind}.{name}"].origin
                what = f"{MIRRORS}.{kind}.{name}: {where} has no {name!r}"
                raise UsageError(what, where=origin, hint=did_you_mean(name, known))
    for name, index in catalog.indexes.items():
        urls, pages = (settings.mirrors(kind).get(name, ()) for kind in ("index", "pages"))
        indexes[name] = index.model_copy(update={"urls": (*urls, *index.urls), "pages": (*pages, *index.pages)})
    for name, host in catalog.hosts.items():
        hosts[name] = host.model_copy(update={"mirrors": (*settings.mirrors("git").get(name, ()), *host.mirrors)})
    return replace(catalog, indexes=indexes, hosts=hosts)
