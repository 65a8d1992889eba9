"""An image as values: its Python and packages, CANN, OS, environment, and Cannery's manifest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from cannery.catalog.versions import order, without_build
from cannery.plan.manifest import MANIFEST_PATH, MANIFEST_SCHEMA
from cannery.recipe.bounds import TORCH, TORCH_NPU
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import BaseLine

TOOLKIT = "toolkit"
TOOLKIT_HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
LATEST = "/usr/local/Ascend/ascend-toolkit/latest"
TOOLKIT_INFO = "/ascend_toolkit_install.info"
TOOLKIT_VERSION = r"^version=(\S+)"
SITE = re.compile(
    r"(?P<site>(?P<prefix>.*)/lib(?:64)?/python(?P<version>\d+(?:\.\d+)?)/(?:site|dist)-packages)/(?P<entry>.+)"
)
METADATA = re.compile(r"(?P<info>[^/]+\.dist-info)/METADATA|[^/]+\.egg-info(?:/PKG-INFO)?|[^/]+\.egg/EGG-INFO/PKG-INFO")
USER_SITE = re.compile(r"/(root|home/[^/]+)/\.local")
# setuptools-scm appends the first digits of the commit to a version.
SCM_COMMIT = re.compile(r"\bg([0-9a-f]{7,40})\b")
MOST_LINKS = 40  # the kernel's own limit


@dataclass(frozen=True)
class Files:
    """What was read from an image: `texts` of files and `links` (path: target), by path; `present` are libraries.

    `arch` is Docker's word; `env` and `labels` are the image's configuration.
    """

    arch: str
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    present: frozenset[str] = frozenset()

    def real(self, path: str) -> str:
        """Return `path` with the image's links followed; a path in a circle of links is returned as it is."""
        todo, here = list(PurePosixPath(path).parts[1:]), PurePosixPath("/")
        links = 0
        while todo:
            part = todo.pop(0)
            here = here.parent if part == ".." else here / part
            target = self.links.get(str(here))
            if target is None:
                continue
            links += 1
            if links > MOST_LINKS:
                return path
            parts = PurePosixPath(target).parts
            here = PurePosixPath("/") if target.startswith("/") else here.parent
            todo = [*(parts[1:] if target.startswith("/") else parts), *todo]
        return str(here)

    def text(self, path: str) -> str:
        """Return the text of a file, links followed; "" for a file that was not read."""
        return self.texts.get(self.real(path), "")


@dataclass(frozen=True)
class Distribution:
    """An installed distribution; `requires` are its PEP 508 requirements.

    `commit` comes from its metadata, may be shortened, and is "" where the metadata has none.
    """

    name: str
    version: str
    commit: str = ""
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Python:
    """An interpreter: `version` is `major.minor`, `distributions` all that it can import, by normalised name."""

    prefix: str
    version: str
    distributions: Mapping[str, Distribution]


@dataclass(frozen=True)
class Image:
    """What is in an image. `cann` maps parts of CANN (toolkit, nnal) to versions.

    `manifest` is Cannery's own; None for an image that Cannery did not make, or for another schema.
    """

    files: Files
    os: str
    python: Python
    cann: Mapping[str, str]
    manifest: Mapping[str, Any] | None = None

    @property
    def packages(self) -> Mapping[str, Distribution]:
        """The distributions that the image's Python can import, by normalised name."""
        return self.python.distributions

    @property
    def toolkit(self) -> str:
        """The version of the CANN in use; "" where there is none."""
        return self.cann.get(TOOLKIT, "")


def read_facts(files: Files, bases: Mapping[str, BaseLine]) -> Image:
    """Return what is in an image; `bases` name the files in which CANN writes its versions."""
    return Image(files, _os_name(files), _python(files), _cann(files, bases), _manifest(files.text(MANIFEST_PATH)))


def _os_name(files: Files) -> str:
    text = files.text("/etc/os-release") or files.text("/usr/lib/os-release")
    values = {name: value.strip("\"' ") for name, _, value in (line.partition("=") for line in text.splitlines())}
    return f"{values.get('ID', '')}{values.get('VERSION_ID', '')}".lower()


def _cann(files: Files, bases: Mapping[str, BaseLine]) -> dict[str, str]:
    """Return the version of each part of CANN: of several, the one that the environment names, else the newest."""
    asked: list[tuple[str, str, str]] = []
    for file in (file for line in bases.values() for file in line.version_files):
        pattern = re.escape(file.line).replace(re.escape("{version}"), r"(\S+)")
        asked += [(file.name, rf"^{pattern}\s*$", files.real(file.at(arch))) for arch in Arch]
    asked += [(TOOLKIT, TOOLKIT_VERSION, path) for path in files.texts if path.endswith(TOOLKIT_INFO)]
    found = [
        (name, without_build(match[1].lower()), path)
        for name, pattern, path in asked
        if (match := re.search(pattern, files.texts.get(path, ""), re.MULTILINE))
    ]
    home = files.real(next((files.env[name] for name in TOOLKIT_HOMES if files.env.get(name)), LATEST))
    found.sort(key=lambda one: (one[2].startswith(f"{home}/"), order(one[1])))
    return {name: version for name, version, _ in found}


def _manifest(text: str) -> Mapping[str, Any] | None:
    """Return a manifest of this schema; None for any other text, and for a manifest that somebody edited."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("schema") != MANIFEST_SCHEMA:
        return None
    target, sources = value.get("target"), value.get("sources")
    if not isinstance(target, dict) or not isinstance(sources, list):
        return None
    texts = [value.get("profile"), value.get("plan"), *target.values()]
    is_whole = all(isinstance(one, str) for one in texts) and all(isinstance(one, dict) for one in sources)
    return value if is_whole else None


def _python(files: Files) -> Python:
    """Return the Python that has torch_npu, else torch, else the first on PATH; an empty one where there is none."""
    sites = _sites(files)
    path = files.env.get("PATH", "").split(":")

    def rank(site: Python) -> tuple[object, ...]:
        position = path.index(f"{site.prefix}/bin") if f"{site.prefix}/bin" in path else len(path)
        names = site.distributions
        return (TORCH_NPU not in names, TORCH not in names, position, -len(names), site.prefix)

    tops = [site for site in sites if site.version != "3" and not USER_SITE.fullmatch(site.prefix)]
    if not tops:
        return Python("", "", {})
    top = min(tops, key=rank)
    found: dict[str, Distribution] = {}
    for site in reversed(_search_path(files, top, sites)):
        found.update(site.distributions)
    return replace(top, distributions=found)


def _search_path(files: Files, top: Python, sites: list[Python]) -> list[Python]:
    """Return the folders of packages that the Python of `top` searches: a user's own, `top`, the base's, Debian's."""
    config = files.texts.get(f"{top.prefix}/pyvenv.cfg")
    settings = dict(re.findall(r"^\s*([\w-]+)\s*=\s*(.*?)\s*$", config or "", re.MULTILINE))
    if config is not None and settings.get("include-system-site-packages") != "true":
        return [top]
    base = settings.get("home", "").removesuffix("/bin") or top.prefix
    prefixes = {"/usr", "/usr/local"} if base in {"/usr", "/usr/local"} else {base}  # Debian's Python has two folders

    def rank(site: Python) -> int:
        if USER_SITE.fullmatch(site.prefix):
            return 0
        return 1 if site == top and config is not None else 3 if site.prefix == "/usr" else 2

    same = (site for site in sites if site.version in {top.version, "3"})
    searched = [site for site in same if site == top or rank(site) == 0 or site.prefix in prefixes]
    return sorted(searched, key=rank)


def _sites(files: Files) -> list[Python]:
    """Return every folder of packages, as the Python that it belongs to."""
    found: dict[str, Python] = {}
    for path in sorted(files.texts):
        match = SITE.fullmatch(path)
        one = _distribution(files, path, match["site"], match["entry"]) if match else None
        if match and one:
            site = found.setdefault(match["site"], Python(match["prefix"], match["version"], {}))
            found[match["site"]] = replace(site, distributions={**site.distributions, one.name: one})
    return list(found.values())


def _distribution(files: Files, path: str, site: str, entry: str) -> Distribution | None:
    if entry.endswith(".egg-link") and "/" not in entry:  # by `setup.py develop`: the metadata is in the tree
        tree = (files.texts[path].splitlines() or [""])[0].strip()
        inside = (text for at, text in files.texts.items() if at.startswith(f"{tree}/") and at.endswith("/PKG-INFO"))
        name = canonicalize_name(entry.removesuffix(".egg-link"))
        return next((one for one in map(_parsed, inside) if one.name == name), Distribution(name, ""))
    match = METADATA.fullmatch(entry)
    one = _parsed(files.texts[path]) if match else None
    if not match or one is None or not one.name:
        return None
    commit = _commit(files.texts.get(f"{site}/{match['info']}/direct_url.json", ""))
    return replace(one, commit=commit or one.commit)


def _parsed(text: str) -> Distribution:
    lines = [line.partition(":") for line in text.replace("\r\n", "\n").split("\n\n", 1)[0].splitlines()]
    fields = {name: value.strip() for name, _, value in reversed(lines)}
    version = fields.get("Version", "")
    match = SCM_COMMIT.search(version.partition("+")[2].replace(".", " "))
    requires = tuple(value.strip() for name, _, value in lines if name == "Requires-Dist")
    return Distribution(canonicalize_name(fields.get("Name", "")), version, match[1] if match else "", requires)


def _commit(text: str) -> str:
    """Return the commit in a direct_url.json; "" where there is none."""
    try:
        return str(json.loads(text)["vcs_info"]["commit_id"])
    except (ValueError, KeyError, TypeError):
        return ""
