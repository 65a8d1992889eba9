"""The manifest: its closed form, the same as docs/manifest.schema.json (a unit test holds them together); its lists."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from verifying.form import PATTERN, Maybe, form_faults, shown

WORD = re.compile(r".+", re.DOTALL)
PATH = re.compile(r"/.*", re.DOTALL)
DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
TARGET = {
    "cann": re.compile(r"[0-9]+\.[0-9]+\.[0-9a-z.]+"),
    "chip": ("910b", "a3", "310p", "910", "a5"),
    "os": re.compile(r"[a-z]+[0-9.]*"),
    "python": re.compile(r"3\.[0-9]+"),
    "arch": ("amd64", "arm64"),
}
BASE = {
    "reference": WORD,
    "digest": Maybe(re.compile(r"sha256:[0-9a-f]{64}")),
    "kind": ("real", "standin", "custom"),
    "python_home": PATH,
    "toolkit_home": PATH,
    "set_env": [PATH],
    "atb_abi": (0, 1),
    "version_files": [{"path": PATH, "name": WORD, "version": WORD}],
}
WHEEL = {"name": WORD, "version": WORD, "hash": DIGEST, "group": WORD, "file": WORD, "built": bool}
SOURCE = {
    "name": WORD,
    "component": WORD,
    "version": Maybe(WORD),
    "install": ("wheel", "editable", "tree"),
    "path": Maybe(PATH),
    "repository": Maybe(WORD),
    "commit": Maybe(COMMIT),
    "release": Maybe(WORD),
    "dirty": bool,
    "without": str,
    "chips": [TARGET["chip"]],
}
MODULE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
PATCHED = {
    "path": PATH,
    "before": Maybe(DIGEST),
    "after": Maybe(DIGEST),
    "module?": re.compile(rf"({MODULE.pattern})?"),
    "functions?": [{"name": WORD, "sha256": DIGEST}],
    "standin?": WORD,
}
PATCH = {"name": WORD, "digest": DIGEST, "component": WORD, "from?": WORD, "rev?": WORD, "files": [PATCHED]}
CHECKS = {
    "imports": [
        {"module": MODULE, "component": WORD, "attribute?": Maybe(WORD), "equals?": Maybe(str), "standin?": WORD}
    ],
    "libraries": [PATH],
    "files": [{"path": PATH, "sha256": Maybe(DIGEST)}],
    "native": [{"path": PATH, "component": WORD}],
    "pip_check_allow": [PATTERN],
    "library_allow?": [PATTERN],
    "writable?": [WORD],
    "programs?": [WORD],
}
FORM: dict[str, object] = {
    "schema": (1,),
    "tool": {"name": WORD, "version": WORD},
    "profile": WORD,
    "plan": re.compile(r"[0-9a-f]{12}"),
    "target": TARGET,
    "base": BASE,
    "wheels": [WHEEL],
    "sources": [SOURCE],
    "patches": [PATCH],
    "patches_left_out?": [{"name": WORD, "component": WORD, "reason": WORD}],
    "env": {"*": str},
    "labels": {"*": str},
    "checks": CHECKS,
    "shm_min_bytes": int,
    "user": Maybe({"uid": int, "name": WORD, "gid?": int, "home?": PATH}),
    "deny": [WORD],
    "exclusive": [[WORD]],
    "may_skip": [re.compile(r"(static|import|npu|train)\.[A-Za-z0-9_.-]+")],
    "forced": [WORD],
    "overrides": [{"requirement": WORD, "reason": WORD}],
    "excludes?": [{"requirement": WORD, "reason": WORD}],
    "archives?": [{"component": WORD, "version": WORD, "file": WORD, "hash": DIGEST, "files": [PATH]}],
    "left_out?": [{"name": WORD, "reason": WORD, "modules": [MODULE]}],
}


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
    faults = form_faults(value, FORM)
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
