"""The manifest as the checks read it, and its lists.

Its form is docs/manifest.schema.json, which tests hold every made manifest to, and --manifest-sha256 compares it with
the planned one.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

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
