"""The Pythons of an image and their distributions, from the metadata that installers leave."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from cannery.recipe.bounds import TORCH, TORCH_NPU

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.against.seen import Seen

SITE = re.compile(
    r"(?P<site>(?P<prefix>.*)/lib(?:64)?/python(?P<version>\d+(?:\.\d+)?)/(?:site|dist)-packages)/(?P<entry>.+)"
)
METADATA = re.compile(r"(?P<info>[^/]+\.dist-info)/METADATA|[^/]+\.egg-info(?:/PKG-INFO)?|[^/]+\.egg/EGG-INFO/PKG-INFO")
# What setuptools-scm puts behind a version: the commit's first digits.
SCM_COMMIT = re.compile(r"\bg([0-9a-f]{7,40})\b")
# Of users' own; only an interpreter that is no virtual environment looks there.
USER_SITE = re.compile(r"/(root|home/[^/]+)/\.local")


@dataclass(frozen=True)
class Distribution:
    """An installed distribution: normalised name, version, the folder of packages that it stands in.

    `commit` is what its metadata says of where it came from, maybe cut off, "" where nothing does; `tree` the local
    folder that it was installed from or that an editable install points to.
    """

    name: str
    version: str
    site: str
    commit: str = ""
    tree: str = ""
    editable: bool = False


@dataclass(frozen=True)
class Python:
    """An interpreter with what it can import: `version` is `major.minor`, `prefix` where it stands.

    `shadowed` are distributions that stand in a folder behind another of the same name.
    """

    prefix: str
    version: str
    distributions: Mapping[str, Distribution]
    shadowed: tuple[Distribution, ...] = ()


@dataclass(frozen=True)
class _Site:
    path: str
    prefix: str
    version: str
    distributions: Mapping[str, Distribution]


def pythons(seen: Seen) -> tuple[Python, ...]:
    """Return the Pythons that have distributions: first the one that has torch_npu, torch, or is first on PATH."""
    sites = _sites(seen)
    path = seen.env.get("PATH", "").split(":")
    tops = [site for site in sites if site.version != "3" and not USER_SITE.fullmatch(site.prefix)]
    return tuple(_python(seen, top, sites) for top in sorted(tops, key=lambda site: _rank(site, path)))


def _rank(site: _Site, path: list[str]) -> tuple[object, ...]:
    position = path.index(f"{site.prefix}/bin") if f"{site.prefix}/bin" in path else len(path)
    names = site.distributions
    return (TORCH_NPU not in names, TORCH not in names, position, -len(names), site.path)


def _python(seen: Seen, top: _Site, sites: tuple[_Site, ...]) -> Python:
    """Put together what the interpreter of `top` looks through, in its order."""
    config = seen.texts.get(f"{top.prefix}/pyvenv.cfg")
    values = dict(_setting(line) for line in (config or "").splitlines() if "=" in line)
    home = values.get("home", "").removesuffix("/bin")
    looked: list[_Site] = []
    for site in sites:
        same = site.version in {top.version, "3"}
        if site is top or not same:
            continue
        is_system = config is None or values.get("include-system-site-packages") == "true"
        is_user = USER_SITE.fullmatch(site.prefix) is not None
        is_debian = config is None and {top.prefix, site.prefix} <= {"/usr", "/usr/local"}
        if is_system and is_user:
            looked.insert(0, site)
        elif is_debian or (is_system and home and site.prefix == home):
            looked.append(site)
    users = [site for site in looked if USER_SITE.fullmatch(site.prefix)]
    others = [site for site in looked if site not in users]
    # Debian's own packages come after what was installed beside them.
    others = sorted([top, *others], key=lambda site: (site is not top and site.prefix == "/usr", site is not top))
    found: dict[str, Distribution] = {}
    shadowed = []
    for site in (*users, *others):
        for name, one in site.distributions.items():
            if found.setdefault(name, one) is not one:
                shadowed.append(one)
    return Python(top.prefix, top.version, found, tuple(shadowed))


def _setting(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.strip(), value.strip()


def _sites(seen: Seen) -> tuple[_Site, ...]:
    found: dict[str, list[Distribution]] = {}
    about: dict[str, tuple[str, str]] = {}
    for path in sorted(seen.texts):
        match = SITE.fullmatch(path)
        if match is None:
            continue
        one = _distribution(seen, path, match["site"], match["entry"])
        if one is not None:
            found.setdefault(match["site"], []).append(one)
            about[match["site"]] = (match["prefix"], match["version"])
    return tuple(_Site(site, *about[site], {one.name: one for one in those}) for site, those in found.items())


def _distribution(seen: Seen, path: str, site: str, entry: str) -> Distribution | None:
    if entry.endswith(".egg-link") and "/" not in entry:
        return _develop(seen, site, entry.removesuffix(".egg-link"), seen.texts[path])
    match = METADATA.fullmatch(entry)
    name, version = _name_version(seen.texts[path]) if match else ("", "")
    if not match or not name:
        return None
    commit, tree, editable = _origin(seen.texts.get(f"{site}/{match['info']}/direct_url.json", ""))
    return Distribution(name, version, site, commit or _scm(version), tree, editable)


def _develop(seen: Seen, site: str, written: str, text: str) -> Distribution | None:
    """Return what `setup.py develop` left: a link to the tree, whose metadata stands there."""
    tree = (text.splitlines() or [""])[0].strip()
    name = canonicalize_name(written)
    for path, content in seen.texts.items():
        if path.startswith(f"{tree}/") and path.endswith(".egg-info/PKG-INFO"):
            found, version = _name_version(content)
            if found == name:
                return Distribution(name, version, site, _scm(version), tree, editable=True)
    return Distribution(name, "", site, "", tree, editable=True)


def _name_version(text: str) -> tuple[str, str]:
    head = text.replace("\r\n", "\n").split("\n\n", 1)[0]
    fields = dict(line.partition(":")[::2] for line in reversed(head.splitlines()))
    return canonicalize_name(fields.get("Name", "").strip()), fields.get("Version", "").strip()


def _origin(text: str) -> tuple[str, str, bool]:
    """Return (commit, local folder, editable) of a direct_url.json; of none, or of what is none, nothing."""
    try:
        value = json.loads(text)
        url = urlsplit(str(value["url"]))
    except (ValueError, KeyError, TypeError):
        return "", "", False
    about, folder = value.get("vcs_info"), value.get("dir_info")
    commit = str(about.get("commit_id", "")) if isinstance(about, dict) else ""
    if not isinstance(folder, dict) or url.scheme != "file":
        return commit, "", False
    return commit, unquote(url.path).rstrip("/"), bool(folder.get("editable"))


def _scm(version: str) -> str:
    match = SCM_COMMIT.search(version.partition("+")[2].replace(".", " "))
    return match[1] if match else ""


def named(pythons: Iterable[Python], name: str) -> Iterator[Distribution]:
    """Give every distribution called `name` that some Python can import."""
    yield from (one for python in pythons for one in [python.distributions.get(name)] if one is not None)
