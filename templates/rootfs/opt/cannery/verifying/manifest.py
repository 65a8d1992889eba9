"""The manifest as the checks read it, and its lists; names and versions as indexes and CANN's files compare them.

The manifest's form is docs/manifest.schema.json. Tests hold every manifest that is made to it, and --manifest-sha256
compares a manifest with the planned one.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


def normal_name(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


VERSION = re.compile(
    r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)"
    r"(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?(\d*))?"
    r"(?:-(\d+)|[-_.]?(post|rev|r)[-_.]?(\d*))?"
    r"(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


def version_key(text: str) -> tuple[tuple[object, ...], str]:
    """(public part, local part) of a PEP 440 version, equal for equal versions. Other text is compared as it is."""
    match = VERSION.fullmatch(text.strip().lower())
    if not match:
        return (text.strip().lower(),), ""
    epoch, release, pre, pre_no, dash, post, post_no, dev, dev_no, local = match.groups()
    numbers = [int(part) for part in release.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    public = (
        int(epoch or 0),
        tuple(numbers),
        (PRE.get(pre, pre), int(pre_no or 0)) if pre else None,
        int(dash) if dash else (int(post_no or 0) if post else None),
        int(dev_no or 0) if dev else None,
    )
    return public, ".".join(part.lstrip("0") or "0" for part in re.split(r"[-_.]", local)) if local else ""


def release(text: str) -> str:
    """The numbers of a version: 2.7.1 of 2.7.1.post2+cpu."""
    match = VERSION.fullmatch(text.strip().lower())
    return match[2] if match else ""


def same_version(wanted: str, found: str) -> bool:
    """Equal public parts, and equal local parts if `wanted` has one: 0.13.0 takes 0.13.0+empty, 2.13.0+cpu itself."""
    (public, local), (found_public, found_local) = version_key(wanted), version_key(found)
    return public == found_public and (not local or local == found_local)


def same_release(wanted: str, found: str) -> bool:
    """Equal public parts: a build's own local part (`+empty`, or a commit) does not identify the source."""
    return version_key(wanted)[0] == version_key(found)[0]


CANN_VERSION = re.compile(
    r"(?<![\w.])(\d+\.\d+\.(?:rc\d+|\d+)(?:\.?(?:alpha|beta)\.?\d+)?)(?:\.b\d+)?(?![\w.])", re.IGNORECASE
)


def without_build(cann: str) -> str:
    """A version of CANN without its build: 8.5.0.b160 is a build of 8.5.0, and version files name either."""
    return re.sub(r"\.b\d+$", "", cann)


def cann_version(text: str) -> str:
    """The CANN version that a version file states, lower case, or "".

    The files of CANN have no common form: `version=8.1.RC1`, `version_dir=8.1.RC1` beside an inner
    `Version=7.6.0.1.220`, `Ascend-cann-atb : 8.1.RC1`.
    """
    lines = sorted(text.splitlines(), key=lambda line: not line.lower().startswith("version_dir"))
    found = (match.group(1).lower() for line in lines for match in CANN_VERSION.finditer(line))
    return next(found, "")


DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")


def scripts(base: dict[str, Any]) -> list[str]:
    """The paths of CANN's set_env scripts; the manifest has their arguments too."""
    return [text.partition(" ")[0] for text in base["set_env"]]


def nearest(word: str, known: Iterable[str]) -> str:
    """The word that was probably meant, in brackets; "" when none is near."""
    near = get_close_matches(word, list(known), 1)
    return f" (nearest: {near[0]})" if near else ""


def shown(value: object) -> str:
    """A value as JSON, cut to one line of a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


class ManifestError(Exception):
    """The manifest cannot be used; the text is one line."""


def load_manifest(path: str, sha256: str = "") -> dict[str, Any]:
    """The manifest as read, of the digest `sha256` if one is given (64 hex digits).

    ManifestError names file, line or field.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror or error}") from error
    found = hashlib.sha256(data).hexdigest()
    if sha256 and found != sha256:
        raise ManifestError(f"{path}: another manifest than the one asked for: SHA-256 {found}, wanted {sha256}")
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: no JSON text: {error}") from error
    if isinstance(value, dict) and value.get("schema", 1) != 1:
        raise ManifestError(f"{path}: schema {shown(value['schema'])}; this script reads schema 1")
    if not isinstance(value, dict):
        raise ManifestError(f"{path}: expected an object, found {shown(value)}")
    return value


def distributed(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The sources that have a distribution in the venv: all but trees, which only PYTHONPATH names."""
    return [item for item in manifest["sources"] if item["install"] != "tree"]


def installed(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Everything that has a distribution in the venv."""
    return [*manifest["wheels"], *distributed(manifest)]


def source_paths(manifest: Mapping[str, Any]) -> list[str]:
    """Where the sources' trees are in the image; one that became a wheel has none."""
    return [item["path"] for item in manifest["sources"] if item["path"]]
