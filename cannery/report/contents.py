"""What an image holds, as values to compare: of a plan, a lock, a manifest, or an image that was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cannery.plan.manifest import MANIFEST_SCHEMA, UNKNOWN, manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.catalog.compatibility import Compatibility
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.plan import Plan


@dataclass(frozen=True)
class Contents:
    """What is known of one image; None is what is not known of it.

    `packages` are {name: version}, `files` {file name: hex SHA-256 of a wheel}, `sizes` {layer: bytes of
    wheels}, `about` {word: text} the target, base and plan, `sources` {component: version and commit}, `patches` {name:
    digest}, `layers` {name: digest, in the image's order}, `env` {variable: value}.
    """

    name: str
    packages: Mapping[str, str]
    about: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] | None = None
    patches: Mapping[str, str] | None = None
    layers: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None


def of_lock(name: str, lock: Lock) -> Contents:
    """Return what a lock holds: packages alone."""
    return Contents(
        name,
        packages={package.name: package.version for package in lock.packages},
        about={"profile": lock.profile, "python": lock.python, "arch": str(lock.arch)},
        files=_files(lock.packages),
    )


def of_manifest(name: str, value: Mapping[str, Any]) -> Contents:
    """Return what a manifest records (docs/manifest.schema.json). Raises `ValueError` for what is no manifest."""
    if value.get("schema") != MANIFEST_SCHEMA:
        raise ValueError(f"schema {value.get('schema')!r} of a manifest is not known, only {MANIFEST_SCHEMA}")
    try:
        wheels, base, target = value["wheels"], value["base"], value["target"]
        about = {"profile": value["profile"], "plan": value["plan"], **target, "base": base["reference"]}
        return Contents(
            name,
            packages={str(one["name"]): str(one["version"]) for one in wheels},
            about={word: str(text) for word, text in {**about, "base digest": base["digest"] or ""}.items() if text},
            files={one["file"]: one["hash"].partition(":")[2] for one in wheels if UNKNOWN not in one["hash"]},
            sources={str(one["component"]): source_words(one) for one in value["sources"]},
            patches={f"{one['component']}: {one['name']}": one["digest"] for one in value["patches"]},
            env={str(word): str(text) for word, text in value["env"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field of the manifest is missing or of a wrong type: {error}") from error


def of_plan(plan: Plan, compatibility: Compatibility) -> Contents:
    """Return what an image of `plan` will hold. Patches are unknown: they are read when an image is built."""
    return replace(
        of_manifest(plan.reference, manifest(plan, compatibility)),
        files=_files(plan.lock.packages),
        sizes={layer.name: layer.wheel_bytes for layer in plan.layers if layer.wheel_bytes},
        patches=None,
        layers={layer.name: layer.digest for layer in plan.layers},
    )


def source_words(source: Mapping[str, Any]) -> str:
    """Return a source of a manifest in words: `0.9.1 at 796871d7d092, with changes`."""
    at = f"at {source['commit'][:12]}" if source["commit"] else ""
    release = f"release {source['release']}" if source["release"] else ""
    words = " ".join(part for part in (source["version"] or "your own tree", release, at) if part)
    return f"{words}, with changes" if source["dirty"] else words


def _files(packages: Sequence[LockedPackage]) -> dict[str, str]:
    return {package.file: package.sha256 for package in packages if package.complete}
