"""An image as values: its Python and packages, CANN, OS, environment, and Cannery's manifest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from cannery.catalog.target import order, without_build
from cannery.plan.manifest import MANIFEST_PATH, MANIFEST_SCHEMA
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.catalog.catalog import BaseLine

TOOLKIT = "toolkit"
TOOLKIT_VERSION = re.compile(r"^version=(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Config:
    """What the engine reports of an image; `arch` is Docker's word."""

    id: str
    arch: str
    env: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Distribution:
    """An installed distribution; `requires` are its PEP 508 requirements."""

    name: str
    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Image:
    """What is in an image.

    `python` is the version (`major.minor`) of the one that PATH has first, `packages` are what it can import, by
    normalised name. `cann` maps parts of CANN (toolkit, nnal) to versions. `manifest` is Cannery's own; None for an
    image that Cannery did not make.
    """

    config: Config
    os: str
    python: str
    prefix: str
    packages: Mapping[str, Distribution]
    cann: Mapping[str, str]
    manifest: Mapping[str, Any] | None = None

    @property
    def toolkit(self) -> str:
        """The version of the CANN in use; "" where there is none."""
        return self.cann.get(TOOLKIT, "")


def version_files(bases: Mapping[str, BaseLine]) -> tuple[str, ...]:
    """Return the files in which CANN writes its versions."""
    return tuple(dict.fromkeys(path for _name, _pattern, path in _asked(bases)))


def read_facts(config: Config, seen: Mapping[str, Any], bases: Mapping[str, BaseLine]) -> Image:
    """Return what is in an image; `seen` is what `cannery.against.io.look` prints."""
    packages: dict[str, Distribution] = {}
    for name, version, requires in seen["packages"]:
        one = Distribution(canonicalize_name(str(name)), str(version), tuple(map(str, requires)))
        packages.setdefault(one.name, one)  # the first one on the search path is imported
    texts = seen["texts"]
    release = (texts.get("/etc/os-release") or texts.get("/usr/lib/os-release", "")).splitlines()
    os = {name: value.strip("\"' ") for name, _, value in (line.partition("=") for line in release)}
    return Image(
        config=config,
        os=f"{os.get('ID', '')}{os.get('VERSION_ID', '')}".lower(),
        python=seen["python"],
        prefix=seen["prefix"],
        packages=packages,
        cann=_cann(seen["versions"], bases),
        manifest=_manifest(texts.get(MANIFEST_PATH, "")),
    )


def _asked(bases: Mapping[str, BaseLine]) -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Give (part of CANN, pattern of its version, path) of each version file of the base lines."""
    for file in (file for line in bases.values() for file in line.version_files):
        pattern = re.escape(file.line).replace(re.escape("{version}"), r"(\S+)")
        for arch in Arch:
            yield file.name, re.compile(rf"^{pattern}\s*$", re.MULTILINE), file.at(arch)


def _cann(seen: Mapping[str, Any], bases: Mapping[str, BaseLine]) -> dict[str, str]:
    """Return the version of each part of CANN: of several, the one that the environment names, else the newest."""
    asked = [*_asked(bases), *((TOOLKIT, TOOLKIT_VERSION, path) for path in seen if path.endswith(".info"))]
    found = [(*seen[path], name, pattern) for name, pattern, path in asked if path in seen]
    versions = [
        (is_used, order(match[1]), name, without_build(match[1].lower()))
        for is_used, text, name, pattern in found
        if (match := pattern.search(text))
    ]
    return {name: version for _used, _order, name, version in sorted(versions)}


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
