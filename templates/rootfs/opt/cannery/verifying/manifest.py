"""The manifest as the checks read it, and its lists.

Its whole form is docs/manifest.schema.json, which tests hold every made manifest to, and --manifest-sha256 compares it
with the planned one. Here is what the checks cannot do without.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
# What has to be there: of the manifest itself (""), of its objects, and of each object in its lists (NAME[]).
NEEDED: Mapping[str, Mapping[str, type]] = {
    "": {
        **dict.fromkeys(("tool", "target", "base", "env", "labels", "checks"), dict),
        **dict.fromkeys(("wheels", "sources", "patches", "deny", "exclusive", "may_skip", "forced", "overrides"), list),
        **dict.fromkeys(("profile", "plan"), str),
        "shm_min_bytes": int,
    },
    "target": dict.fromkeys(("cann", "chip", "os", "python", "arch"), str),
    "base": {
        **dict.fromkeys(("kind", "python_home", "toolkit_home"), str),
        **dict.fromkeys(("set_env", "version_files"), list),
        "atb_abi": int,
    },
    "checks": dict.fromkeys(("imports", "libraries", "files", "native", "pip_check_allow"), list),
    "wheels[]": {"name": str, "version": str},
    "sources[]": {"name": str, "component": str, "install": str, "without": str, "version": object, "path": object},
    "patches[]": {"name": str, "component": str, "files": list},
}
KINDS: dict[object, str] = {dict: "an object", list: "a list", str: "text", int: "a number", object: "a value"}


def form_faults(value: object) -> list[str]:
    """Every place where a manifest is not as the checks need it, as "where: what"."""
    if not isinstance(value, dict):
        return [f"manifest: expected an object, found {shown(value)}"]
    faults = object_faults(value, "", NEEDED[""])
    for where, needed in NEEDED.items():
        items = value.get(where.removesuffix("[]"))
        if where.endswith("[]") and isinstance(items, list):
            named = {f"{where[:-1]}{at}]": item for at, item in enumerate(items)}
            faults += [fault for place, item in named.items() for fault in object_faults(item, place, needed)]
        elif where and isinstance(items, dict):
            faults += object_faults(items, where, needed)
    return faults if "user" in value else [*faults, "user: missing"]


def object_faults(value: object, where: str, needed: Mapping[str, type]) -> list[str]:
    """What an object lacks of what is needed, or has of another kind."""
    if not isinstance(value, dict):
        return [f"{where}: expected an object, found {shown(value)}"]
    start = f"{where}." if where else ""
    faults = [f"{start}{key}: missing" for key in needed if key not in value]
    wrong = [key for key, kind in needed.items() if key in value and not isinstance(value[key], kind)]
    return faults + [f"{start}{key}: expected {KINDS[needed[key]]}, found {shown(value[key])}" for key in wrong]


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
    """The manifest as read and found whole, of the digest `sha256` if one is given (64 hex digits).

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
    except json.JSONDecodeError as error:
        raise ManifestError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ManifestError(f"{path}: not JSON text ({type(error).__name__})") from error
    if isinstance(value, dict) and value.get("schema", 1) != 1:
        raise ManifestError(f"{path}: schema {shown(value['schema'])}; this script reads schema 1")
    faults = form_faults(value)
    if faults:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise ManifestError(f"{path}: {'; '.join(faults[:3])}{more}")
    return dict(value)


def not_imported(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Check id → why a module cannot be imported in a stand-in image: by itself, or without its distribution."""
    by_itself = {f"import.{i['module']}": i["standin"] for i in manifest["checks"]["imports"] if i.get("standin")}
    return by_itself | {
        f"import.{module}": f"{item['name']} is left out: {item['reason']}"
        for item in manifest.get("left_out", ())
        for module in item["modules"]
    }


def distributed(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The sources that have a distribution in the venv: all but trees, which only PYTHONPATH names."""
    return [item for item in manifest["sources"] if item["install"] != "tree"]


def installed(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Everything that has a distribution in the venv."""
    return [*manifest["wheels"], *distributed(manifest)]


def source_paths(manifest: Mapping[str, Any]) -> list[str]:
    """Where the sources' trees are in the image; one that became a wheel has none."""
    return [item["path"] for item in manifest["sources"] if item["path"]]
