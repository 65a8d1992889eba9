"""The manifest: its closed form, the same as docs/manifest.schema.json (a unit test compares them), and its lists.

A form is a dict (an object with these keys; `key?` may be absent, `*` alone means any key), a list (of one form),
a tuple (the values allowed), `Maybe`, a pattern that the whole text matches, PATTERN, or str, int (not negative), bool.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

PATTERN = re.compile  # means "a text that is a regular expression"
KINDS: dict[object, str] = {dict: "an object", list: "a list", str: "text", int: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Maybe:
    """A value of a form, or null."""

    form: object


def form_faults(value: object, form: object, where: str = "") -> list[str]:
    """Every place where `value` departs from `form`, as "where: what"."""
    if isinstance(form, Maybe):
        return [] if value is None else form_faults(value, form.form, where)
    wrong = _wrong(value, form)
    if wrong:
        return [f"{where or 'manifest'}: {wrong} {shown(value)}"]
    if isinstance(value, list) and isinstance(form, list):
        return [fault for at, item in enumerate(value) for fault in form_faults(item, form[0], f"{where}[{at}]")]
    return _key_faults(value, form, where) if isinstance(value, dict) and isinstance(form, dict) else []


def _wrong(value: object, form: object) -> str:
    """How a value departs from a form, what is inside it left aside; "" when it does not."""
    if form is PATTERN:
        try:
            re.compile(value if isinstance(value, str) else "(")
        except re.error as error:
            return f"not a regular expression ({error}):"
        return ""
    if isinstance(form, tuple):
        good, wanted = value in form and not isinstance(value, bool), " or ".join(map(str, form))
    elif isinstance(form, re.Pattern):
        good, wanted = isinstance(value, str) and form.fullmatch(value) is not None, f"text like {form.pattern}"
    else:
        kind = form if isinstance(form, type) else type(form)
        good, wanted = type(value) is kind and not (isinstance(value, int) and value < 0), KINDS[kind]
    return "" if good else f"expected {wanted}, found"


def _key_faults(value: dict[str, object], form: dict[str, object], where: str) -> list[str]:
    path = f"{where}." if where else ""
    if "*" in form:
        return [fault for key in value for fault in form_faults(value[key], form["*"], f"{path}{key}")]
    known = {key.rstrip("?"): key for key in form}
    faults = [f"{path}{key}: missing" for key, raw in known.items() if key not in value and key == raw]
    faults += [f"{path}{key}: unknown key{nearest(key, known)}" for key in sorted(set(value) - set(known))]
    for key, raw in known.items():
        if key in value:
            faults += form_faults(value[key], form[raw], f"{path}{key}")
    return faults


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


WORD = re.compile(r".+", re.DOTALL)
PATH = re.compile(r"/.*", re.DOTALL)
DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
TARGET = {
    "cann": re.compile(r"[0-9]+\.[0-9]+\.[0-9a-z.]+"),
    "chip": ("910b", "a3", "310p", "910", "950", "a5"),
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
    "executable?": bool,
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
    "substitutes?": [{"name": WORD, "version": WORD, "reason": WORD}],
    "torch_npu_cann?": [WORD],
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
