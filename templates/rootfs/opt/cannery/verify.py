"""Proves that this image is what its manifest says. Standard library only; Python 3.10 and later.

    /opt/venv/bin/python /opt/cannery/verify.py [--level static|import|npu] [--json]

Reads /opt/cannery/manifest.json (docs/manifest.schema.json) and prints one line a check, or one JSON document
(docs/verify-report.schema.json). Exit codes: 0 all passed (warnings allowed), 1 a failure, 2 wrong use, 3 the machine
cannot run what was asked.
A check that was skipped is never called passed, and a skip that the manifest's `may_skip` does not name is a failure.
Nothing here uses the network, and nothing is written into the image.
"""

# os and glob work on strings here: pathlib doubles the time on the tens of thousands of files of an image.
# ruff: noqa: PTH109, PTH110, PTH112, PTH113, PTH115, PTH116, PTH118, PTH119, PTH120, PTH123, PTH202, PTH207, PTH208

from __future__ import annotations

import argparse
import fnmatch
import glob
import hashlib
import importlib.util
import json
import mmap
import os
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MANIFEST = "/opt/cannery/manifest.json"
VENV = "/opt/venv"
PRIVATE = "/root/"  # closed to other users in every base
DRIVER = "/usr/local/Ascend/driver"
LEVELS = ("static", "import", "npu")
SIGNS = {"passed": "✅", "failed": "❌", "warning": "⚠️ ", "skipped": "⏭️ "}
NO_NPU = "no NPU"
DETAILS_SHOWN = 12  # lines of detail under a check; JSON has all

# ---------------------------------------------------------------------------------------------------------------------
# What a check says


@dataclass(frozen=True)
class Outcome:
    """What one check found. `unable`: a failure of the machine at hand, not of the image (exit 3 instead of 1)."""

    status: str
    message: str
    details: tuple[str, ...] = ()
    unable: bool = False
    id: str = ""
    level: str = ""


def passed(message: str, details: Iterable[str] = ()) -> Outcome:
    """The fact holds."""
    return Outcome("passed", message, tuple(details))


def failed(message: str, details: Iterable[str] = (), *, unable: bool = False) -> Outcome:
    """The fact does not hold."""
    return Outcome("failed", message, tuple(details), unable)


def warning(message: str, details: Iterable[str] = ()) -> Outcome:
    """Worth knowing; does not change the exit code."""
    return Outcome("warning", message, tuple(details))


def skipped(reason: str, details: Iterable[str] = ()) -> Outcome:
    """Not looked at, and why."""
    return Outcome("skipped", reason, tuple(details))


def judged(faults: Sequence[str], good: str, bad: str = "") -> Outcome:
    """Passed when there is no fault; one fault is the message itself, more stand below `bad`."""
    if not faults:
        return passed(good)
    if len(faults) == 1 and not bad:
        return failed(faults[0])
    return failed(bad or f"{len(faults)} faults", faults)


# ---------------------------------------------------------------------------------------------------------------------
# The manifest's form: the same closed schema as docs/manifest.schema.json (a unit test holds the two together)


@dataclass(frozen=True)
class Each:
    """An object with any text keys, whose values have one form."""

    form: object


@dataclass(frozen=True)
class Maybe:
    """A value of a form, or null."""

    form: object


DIGEST = re.compile(r"(sha256:)?[0-9a-f]{64}")
WORD = re.compile(r".+", re.DOTALL)
PATH = re.compile(r"/.*", re.DOTALL)
PATTERN = re.compile  # stands for "a text that is a regular expression"
FORM: dict[str, object] = {
    "schema": (1,),
    "tool": {"name": WORD, "version": WORD},
    "profile": WORD,
    "plan": re.compile(r"[0-9a-f]{12}"),
    "target": {
        "cann": re.compile(r"[0-9]+\.[0-9]+\.[0-9a-z.]+"),
        "chip": ("910b", "a3", "310p", "910", "a5"),
        "os": re.compile(r"[a-z]+[0-9.]*"),
        "python": re.compile(r"3\.[0-9]+"),
        "arch": ("amd64", "arm64"),
    },
    "base": {
        "reference": WORD,
        "digest": Maybe(re.compile(r"sha256:[0-9a-f]{64}")),
        "kind": ("real", "standin", "custom"),
        "python_home": PATH,
        "toolkit_home": PATH,
        "set_env": [PATH],
        "atb_abi": (0, 1),
        "version_files": [{"path": PATH, "name": WORD, "version": WORD}],
    },
    "wheels": [{"name": WORD, "version": WORD, "hash": DIGEST, "group": WORD, "file": WORD, "built": bool}],
    "sources": [
        {
            "name": WORD,
            "repository": Maybe(WORD),
            "commit": Maybe(re.compile(r"[0-9a-f]{40}")),
            "path": PATH,
            "dirty": bool,
            "release": Maybe(WORD),
        }
    ],
    "patches": [
        {
            "name": WORD,
            "digest": DIGEST,
            "component": WORD,
            "files": [{"path": PATH, "before": Maybe(DIGEST), "after": Maybe(DIGEST)}],
        }
    ],
    "env": Each(str),
    "labels": Each(str),
    "checks": {
        "imports": [
            {
                "module": re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*"),
                "component": WORD,
                "attribute?": Maybe(WORD),
                "equals?": Maybe(str),
            }
        ],
        "libraries": [PATH],
        "files": [{"path": PATH, "sha256": Maybe(DIGEST)}],
        "native": [{"path": PATH, "component": WORD}],
        "pip_check_allow": [PATTERN],
        "library_allow?": [PATTERN],
    },
    "shm_min_bytes": int,
    "user": Maybe({"uid": int, "name": WORD}),
    "deny": [WORD],
    "exclusive": [[WORD]],
    "may_skip": [re.compile(r"(static|import|npu)\.[A-Za-z0-9_.-]+")],
    "forced": [WORD],
    "overrides": [{"requirement": WORD, "reason": WORD}],
}


def form_faults(value: object, form: object, where: str = "") -> list[str]:
    """Every place where `value` departs from `form`, as "where: what"."""
    name = where or "manifest"
    if isinstance(form, Maybe):
        return [] if value is None else form_faults(value, form.form, where)
    if isinstance(form, dict):
        return _object_faults(value, form, where)
    if isinstance(form, Each):
        if not isinstance(value, dict):
            return [f"{name}: expected an object, found {_shown(value)}"]
        return [fault for key in value for fault in form_faults(value[key], form.form, f"{where}.{key}".lstrip("."))]
    if isinstance(form, list):
        if not isinstance(value, list):
            return [f"{name}: expected a list, found {_shown(value)}"]
        return [fault for at, item in enumerate(value) for fault in form_faults(item, form[0], f"{where}[{at}]")]
    return _scalar_faults(value, form, name)


def _object_faults(value: object, form: dict[str, object], where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where or 'manifest'}: expected an object, found {_shown(value)}"]
    known = {key.rstrip("?"): key for key in form}
    path = f"{where}." if where else ""
    faults = [f"{path}{key}: missing" for key, raw in known.items() if key not in value and key == raw]
    for key in sorted(set(value) - set(known)):
        near = get_close_matches(key, list(known), 1)
        faults.append(f"{path}{key}: unknown key" + (f" (nearest: {near[0]})" if near else ""))
    for key in known:
        if key in value:
            faults += form_faults(value[key], form[known[key]], f"{path}{key}")
    return faults


def _scalar_faults(value: object, form: object, name: str) -> list[str]:
    if isinstance(form, tuple):
        good = value in form and not isinstance(value, bool)
        return [] if good else [f"{name}: expected {' or '.join(map(str, form))}, found {_shown(value)}"]
    if form is PATTERN:
        try:
            re.compile(value if isinstance(value, str) else "(")
        except re.error as error:
            return [f"{name}: not a regular expression ({error}): {_shown(value)}"]
        return []
    if isinstance(form, re.Pattern):
        good = isinstance(value, str) and form.fullmatch(value) is not None
        return [] if good else [f"{name}: expected text like {form.pattern}, found {_shown(value)}"]
    words: dict[object, str] = {str: "text", int: "a number", bool: "true or false"}
    good = type(value) is form and not (isinstance(value, int) and value < 0)
    return [] if good else [f"{name}: expected {words[form]}, found {_shown(value)}"]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


class ManifestError(Exception):
    """The manifest cannot be used; the text is one line."""


def load_manifest(path: str) -> dict[str, Any]:
    """The manifest as read and found whole. ManifestError names file, line or field."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read().decode("utf-8"))
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise ManifestError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ManifestError(f"{path}: not JSON text ({type(error).__name__})") from error
    if isinstance(value, dict) and value.get("schema", 1) != 1:
        raise ManifestError(f"{path}: schema {_shown(value['schema'])}; this script reads schema 1")
    faults = form_faults(value, FORM)
    if faults:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise ManifestError(f"{path}: {'; '.join(faults[:3])}{more}")
    return dict(value)


# ---------------------------------------------------------------------------------------------------------------------
# Names and versions


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


def same_version(wanted: str, found: str) -> bool:
    """Equal public parts, and equal local parts if `wanted` has one: 0.13.0 takes 0.13.0+empty, 2.13.0+cpu itself."""
    (public, local), (found_public, found_local) = version_key(wanted), version_key(found)
    return public == found_public and (not local or local == found_local)


CANN_VERSION = re.compile(r"(?<![\w.])(\d+\.\d+\.(?:rc\d+|\d+)(?:\.?(?:alpha|beta)\.?\d+)?)(?![\w.])", re.IGNORECASE)


def cann_version(text: str) -> str:
    """The CANN version that a version file states, lower case, or "".

    The files of CANN have no common form: `version=8.1.RC1`, `version_dir=8.1.RC1` beside an inner
    `Version=7.6.0.1.220`, `Ascend-cann-atb : 8.1.RC1`.
    """
    lines = sorted(text.splitlines(), key=lambda line: not line.lower().startswith("version_dir"))
    found = (match.group(1).lower() for line in lines for match in CANN_VERSION.finditer(line))
    return next(found, "")


# ---------------------------------------------------------------------------------------------------------------------
# The image that is looked at


class Entry(NamedTuple):
    """One name of a tree, not followed when it is a link."""

    path: str
    mode: int
    size: int


@dataclass(frozen=True)
class Distribution:
    """One .dist-info or .egg-info folder of site-packages."""

    name: str
    version: str
    folder: str
    requires: tuple[str, ...]

    @property
    def key(self) -> str:
        """The normalised name."""
        return normal_name(self.name)


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    timeout: float = 300.0
    no_device: bool = False
    require_npu: bool = False


@dataclass(frozen=True)
class Image:
    """The manifest, and the file system and process it is compared with. `root` is "/" but for tests."""

    manifest: Mapping[str, Any]
    root: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    options: Options = Options()
    manifest_path: str = MANIFEST
    memory: dict[str, Any] = field(default_factory=dict)  # what several checks need and only one should compute

    def path(self, path: str) -> str:
        """Where an absolute path of the image is on this machine."""
        return path if self.root == "/" else self.root + path

    def shown(self, path: str) -> str:
        """The reverse of `path`, for messages."""
        return path if self.root == "/" or not path.startswith(self.root + "/") else path[len(self.root) :]

    @property
    def python(self) -> str:
        """The interpreter that users of the image get."""
        return self.path(f"{VENV}/bin/python")

    def remember(self, key: str, make: Callable[[], Any]) -> Any:
        """The value of `make()`, computed once."""
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    @property
    def site(self) -> str:
        """The site-packages folder of the venv."""
        found = sorted(glob.glob(self.path(f"{VENV}/lib/python3*/site-packages")))
        if not found:
            raise LookupError(f"{VENV}/lib/python3*/site-packages does not exist")
        return found[0]

    def tree(self, path: str) -> list[Entry]:
        """All names below an absolute path of the image, links not followed; walked once."""
        where = self.path(path)
        return list(self.remember(f"tree {path}", lambda: list(walk(where))))

    @property
    def distributions(self) -> list[Distribution]:
        """Everything installed in the venv's site-packages, duplicates included."""
        return list(self.remember("distributions", lambda: sorted(installed(self.site), key=lambda d: d.key)))


def walk(folder: str) -> Iterator[Entry]:
    """All names below a folder; folders that cannot be read are left out (static.readable finds them by their mode)."""
    try:
        with os.scandir(folder) as names:
            entries = list(names)
    except OSError:
        return
    for entry in entries:
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        yield Entry(entry.path, about.st_mode, about.st_size)
        if stat.S_ISDIR(about.st_mode):
            yield from walk(entry.path)


def installed(site: str) -> Iterator[Distribution]:
    """The distributions of a site-packages folder; one without readable metadata goes by the name of its folder."""
    for name in os.listdir(site):
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        folder = os.path.join(site, name)
        candidates = (os.path.join(folder, "METADATA"), os.path.join(folder, "PKG-INFO"), folder)
        text = next((read_text(path) for path in candidates if os.path.isfile(path)), "")
        head = re.split(r"\r?\n\r?\n", text, maxsplit=1)[0]
        fields = dict(re.findall(r"^(Name|Version):[ \t]*(\S+)", head, re.MULTILINE))
        requires = re.findall(r"^Requires-Dist:[ \t]*([\w.-]+)", head, re.MULTILINE)
        stem, _, rest = name.rpartition(".")[0].partition("-")
        yield Distribution(
            fields.get("Name", stem), fields.get("Version", rest), name, tuple(normal_name(item) for item in requires)
        )


def read_text(path: str) -> str:
    """A file as text, whatever its bytes; "" when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def digest_of(path: str) -> str:
    """SHA-256 of a file, as hex."""
    result = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            result.update(block)
    return result.hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# Child processes


class Finished(NamedTuple):
    """A child that ended, or was ended after the time limit (`code` None)."""

    code: int | None
    out: str
    err: str


def run(image: Image, command: Sequence[str], *, cwd: str = "/", text: str = "") -> Finished:
    """Runs a child in the image's environment. OSError when it cannot start."""
    child = subprocess.Popen(
        list(command),
        cwd=cwd if cwd != "/" else image.path("/"),
        env=child_env(image),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    code: int | None
    try:
        out, err = child.communicate(text.encode(), timeout=image.options.timeout)
        code = child.returncode
    except subprocess.TimeoutExpired:
        end(child)
        out, err = child.communicate()
        code = None
    return Finished(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def child_env(image: Image) -> dict[str, str]:
    """The image's environment; only that children leave no .pyc behind."""
    return {**image.env, "PYTHONDONTWRITEBYTECODE": "1"}


def end(child: subprocess.Popen[bytes]) -> None:
    """Kills a child and whatever it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()


def ending(code: int | None, seconds: float) -> str:
    """How a child ended, in words."""
    if code is None:
        return f"no answer within {seconds:g} s"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with code {code} before it was done"


# Runs tasks one after another and reports each on a pipe of its own, before and after, so that a crash or a silence has
# a culprit and a module's own output cannot be taken for a report. It ends by _exit: threads that an import left behind
# must not hang it.
WORKER = r"""
import ctypes, importlib, json, os, sys
report = os.fdopen(int(sys.argv[1]), "w", buffering=1)
def say(**words):
    for stream in (sys.stdout, sys.stderr):
        try: stream.flush()
        except BaseException: pass
    try: words["at"] = os.lseek(1, 0, os.SEEK_CUR)
    except OSError: words["at"] = -1
    report.write(json.dumps(words) + "\n")
def text(value):
    return value if isinstance(value, str) else str(value)
def do_import(task):
    module = importlib.import_module(task["module"])
    result = {"file": getattr(module, "__file__", None) or "", "version": "", "values": {}}
    try: result["version"] = text(getattr(module, "__version__", ""))
    except Exception: pass
    for attribute in task["attributes"]:
        value = module
        for part in attribute.split("."):
            value = getattr(value, part)
        result["values"][attribute] = text(value)
    return result
def do_library(task):
    ctypes.CDLL(task["path"])
    return {}
def do_pair(task):
    import torch, torch_npu
    extension = sys.modules.get("torch_npu._C")
    return {"torch": text(torch.__version__), "torch_npu": text(torch_npu.__version__),
            "extension": getattr(extension, "__file__", None) or "",
            "abi": int(bool(torch._C._GLIBCXX_USE_CXX11_ABI)), "available": bool(torch.npu.is_available())}
def do_count(task):
    import torch, torch_npu
    return {"count": int(torch.npu.device_count())}
def do_tensor(task):
    import torch, torch_npu
    there = torch.arange(16, dtype=torch.float32).to("npu:%d" % task["index"]) + 1
    back = there.cpu().tolist()
    if back != [float(number) for number in range(1, 17)]:
        raise ValueError("sent 0..15, added 1, got %r" % (back,))
    return {"device": text(there.device)}
def causes(error):
    found = []
    while error is not None and len(found) < 20:
        name = type(error).__name__
        found.append(name + ": " + " ".join(text(error).split())[:1000] if text(error) else name)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found[::-1]
for number, task in enumerate(json.loads(sys.argv[2])):
    say(start=number)
    try:
        say(done=number, ok=True, result=globals()["do_" + task["do"]](task))
    except BaseException as error:
        try: say(done=number, ok=False, causes=causes(error))
        except BaseException: say(done=number, ok=False, causes=[type(error).__name__])
        if task["do"] in ("import", "pair"):
            break  # half-imported modules stay behind, and what follows would fail for their sake
say(end=True)
report.flush()
os._exit(0)
"""


class Answer(NamedTuple):
    """What became of one task of a worker."""

    ok: bool
    result: dict[str, Any]
    causes: tuple[str, ...]  # first cause first; for a crash or a silence one line that says so
    noise: str  # what the task printed


def work(image: Image, tasks: Sequence[dict[str, Any]]) -> list[Answer]:
    """Runs the tasks in as few children as possible: a failed import ends its child, and the rest go on in a new one.

    A crash or a silence is the failure of the task that was being done; the time limit counts from one report to the
    next. A crash behind other tasks is tried again alone, to tell a clash with those from a fault of its own.
    """
    answers: dict[int, Answer] = {}
    while rest := [at for at in range(len(tasks)) if at not in answers]:
        got, culprit, how = _one_worker(image, [tasks[at] for at in rest])
        answers.update({rest[at]: answer for at, answer in got.items()})
        if culprit is not None and culprit > 0 and how.startswith("killed by"):
            alone, _, _ = _one_worker(image, [tasks[rest[culprit]]])
            if alone[0].ok:
                before = ", ".join(str(tasks[at].get("module", tasks[at]["do"])) for at in rest[:culprit])
                answers[rest[culprit]] = got[culprit]._replace(causes=(f"{how} after {before}; alone it works",))
    return [answers[at] for at in range(len(tasks))]


def _one_worker(image: Image, tasks: Sequence[dict[str, Any]]) -> tuple[dict[int, Answer], int | None, str]:
    """(answers by task, index of the task that ended the child or None, how the child ended)."""
    with os.fdopen(os.memfd_create("noise"), "w+b") as noise:  # no file: /tmp may be read-only
        reader, writer = os.pipe()
        try:
            child = subprocess.Popen(
                [image.python, "-X", "faulthandler", "-c", WORKER, str(writer), json.dumps(list(tasks))],
                cwd=image.path("/"),
                env=child_env(image),
                stdin=subprocess.DEVNULL,
                stdout=noise,
                stderr=noise,
                pass_fds=(writer,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(reader)
            os.close(writer)
            how = f"cannot start {image.shown(image.python)}: {error.strerror}"
            return {at: Answer(ok=False, result={}, causes=(how,), noise="") for at in range(len(tasks))}, None, how
        os.close(writer)
        reports = list(_reports(child, reader, image.options.timeout))
        os.close(reader)
        silent = child.poll() is None and "end" not in (reports[-1] if reports else {})
        end(child)
        code = child.wait()
        noise.seek(0)
        printed = noise.read()
    return _answers(reports, printed, ending(None if silent else code, image.options.timeout), len(tasks))


def _reports(child: subprocess.Popen[bytes], reader: int, limit: float) -> Iterator[dict[str, Any]]:
    """The child's reports as they come, until it says the end, ends, or is silent for longer than the limit."""
    held, heard = b"", time.monotonic()
    while True:
        gone = child.poll() is not None
        if select.select([reader], [], [], 0 if gone else 0.2)[0]:
            block = os.read(reader, 65536)
            if not block:
                child_done(child, limit)
                return
            held += block
            *lines, held = held.split(b"\n")
            for line in lines:
                heard = time.monotonic()
                report = json.loads(line)
                yield report
                if "end" in report:
                    return
        elif gone or time.monotonic() - heard > limit:
            return


def child_done(child: subprocess.Popen[bytes], limit: float) -> None:
    """Waits for a child that closed its pipe: it is about to end, or sits there with the pipe closed."""
    try:
        child.wait(min(limit, 10))
    except subprocess.TimeoutExpired:
        return


def _answers(
    reports: Sequence[dict[str, Any]], printed: bytes, how: str, count: int
) -> tuple[dict[int, Answer], int | None, str]:
    answers: dict[int, Answer] = {}
    start, since = 0, 0
    culprit: int | None = 0
    for report in reports:
        if "start" in report:
            start = culprit = report["start"]
            since = max(report["at"], 0)
        elif "done" in report:
            noise = printed[since : report["at"] if report["at"] >= 0 else None].decode("utf-8", "replace")
            answers[start] = Answer(report["ok"], report.get("result", {}), tuple(report.get("causes", ())), noise)
            culprit = start + 1  # should the child end before the next start
        else:
            culprit = None
    if culprit is not None:
        culprit = min(culprit, count - 1)
        noise = printed[since:].decode("utf-8", "replace")
        answers[culprit] = Answer(ok=False, result={}, causes=(how,), noise=noise)
    return answers, culprit, how


# ---------------------------------------------------------------------------------------------------------------------
# ELF


class Elf(NamedTuple):
    """What the dynamic loader reads of a shared object."""

    machine: int
    bits: int
    needed: tuple[str, ...]
    soname: str
    runpath: tuple[str, ...]


MACHINES = {"amd64": 62, "arm64": 183}
DYNAMIC, LOAD = 2, 1
NEEDED, STRTAB, SONAME, RPATH, RUNPATH = 1, 5, 14, 15, 29


def read_elf(path: str) -> Elf | None:
    """The dynamic section of an ELF file; None when it is not ELF. ValueError when it is broken."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse_elf(data)
        except (struct.error, IndexError) as error:
            raise ValueError(f"broken ELF file ({error})") from error


def _parse_elf(data: mmap.mmap) -> Elf:
    if data[4] not in {1, 2} or data[5] not in {1, 2}:
        raise ValueError("broken ELF file (class or byte order)")
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    (machine,) = struct.unpack_from(order + "H", data, 18)
    (headers,) = struct.unpack_from(order + ("Q" if wide else "I"), data, 32 if wide else 28)
    size, count = struct.unpack_from(order + "HH", data, 54 if wide else 42)
    segments = [_segment(data, order, headers + at * size, wide=wide) for at in range(count)]
    dynamic = next((item for item in segments if item[0] == DYNAMIC), None)
    tags = _tags(data, order, dynamic[1], dynamic[3], wide=wide) if dynamic else []
    table = next((value for tag, value in tags if tag == STRTAB), 0)
    strings = next(
        (off + table - at for kind, off, at, length in segments if kind == LOAD and at <= table < at + length), 0
    )

    def texts(wanted: int) -> tuple[str, ...]:
        return tuple(_string(data, strings + value) for tag, value in tags if tag == wanted)

    paths = texts(RUNPATH) or texts(RPATH)  # ld.so ignores RPATH where there is a RUNPATH
    return Elf(
        machine,
        64 if wide else 32,
        texts(NEEDED),
        next(iter(texts(SONAME)), ""),
        tuple(part for text in paths for part in text.split(":") if part),
    )


def _segment(data: mmap.mmap, order: str, at: int, *, wide: bool) -> tuple[int, int, int, int]:
    """(type, file offset, address, bytes in the file) of a program header."""
    if wide:
        kind, _, offset, address, _, length = struct.unpack_from(order + "IIQQQQ", data, at)
    else:
        kind, offset, address, _, length = struct.unpack_from(order + "IIIII", data, at)
    return kind, offset, address, length


def _tags(data: mmap.mmap, order: str, at: int, length: int, *, wide: bool) -> list[tuple[int, int]]:
    one = struct.Struct(order + ("qQ" if wide else "iI"))
    tags: list[tuple[int, int]] = []
    for place in range(at, at + length - one.size + 1, one.size):
        tag, value = one.unpack_from(data, place)
        if tag == 0:
            break
        tags.append((tag, value))
    return tags


def _string(data: mmap.mmap, at: int) -> str:
    stop = data.find(b"\0", at)
    if not 0 < at < len(data) or stop < 0:
        raise ValueError("broken ELF file (string table)")
    return data[at:stop].decode("utf-8", "replace")


def cached_libraries(path: str) -> dict[str, str]:
    """Name → path of /etc/ld.so.cache (glibc's new format, all that ldconfig(8) writes since 2.32); {} without one."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return {}
    start = data.find(b"glibc-ld.so.cache1.1")
    if start < 0:
        return {}
    (count,) = struct.unpack_from("<I", data, start + 20)
    found: dict[str, str] = {}
    for at in range(count):
        name, where = struct.unpack_from("<II", data, start + 48 + 24 * at + 4)
        key = data[start + name : data.find(b"\0", start + name)].decode()
        found.setdefault(key, data[start + where : data.find(b"\0", start + where)].decode())
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Level static


CHECKS: dict[str, Callable[[Image], Outcome]] = {}


def check(name: str) -> Callable[[Callable[[Image], Outcome]], Callable[[Image], Outcome]]:
    """Registers a check under its id, in the order of the file."""

    def register(function: Callable[[Image], Outcome]) -> Callable[[Image], Outcome]:
        CHECKS[name] = function
        return function

    return register


@check("static.manifest")
def manifest_check(image: Image) -> Outcome:
    """The manifest was read (else no check runs at all), names only checks that exist, and each thing once."""
    manifest, known = image.manifest, {*CHECKS, PAIR, *check_ids(image.manifest)}
    faults = []
    for name in manifest["may_skip"]:
        if name not in known:
            near = get_close_matches(name, known, 1)
            faults.append(f"may_skip names an unknown check {name}" + (f" (nearest: {near[0]})" if near else ""))
    for what, names in (
        ("wheels", [normal_name(item["name"]) for item in manifest["wheels"]]),
        ("sources", [normal_name(item["name"]) for item in manifest["sources"]]),
    ):
        faults += [f"{what} names {name} {count} times" for name, count in Counter(names).items() if count > 1]
    if not manifest["wheels"]:
        faults.append("wheels is empty: nothing to prove")
    return judged(
        faults, f"plan {manifest['plan']} of profile {manifest['profile']}, {len(manifest['wheels'])} distributions"
    )


PROBE = (
    "import json, sys, sysconfig; print(json.dumps({'version': '%d.%d.%d' % sys.version_info[:3], 'prefix': sys.prefix,"
    " 'base_prefix': sys.base_prefix, 'path': sys.path, 'stdlib': sysconfig.get_path('stdlib')}))"
)


@check("static.python")
def python_check(image: Image) -> Outcome:
    """The venv's interpreter runs, has the target's minor version, belongs to /opt/venv and stands alone."""
    wanted, shown = image.manifest["target"]["python"], image.shown(image.python)
    try:
        child = run(image, [image.python, "-c", PROBE])
    except OSError as error:
        return failed(f"{shown} cannot be started: {error.strerror}")
    if child.code != 0:
        return failed(f"{shown} {ending(child.code, image.options.timeout)}", child.err.splitlines()[-3:])
    facts = json.loads(child.out)
    home, venv = image.manifest["base"]["python_home"], image.path(VENV)
    faults = []
    if facts["version"].split(".")[:2] != wanted.split("."):
        faults.append(f"{shown} is Python {facts['version']}, the target is {wanted}")
    if os.path.realpath(facts["prefix"]) != os.path.realpath(venv):
        faults.append(f"its prefix is {image.shown(facts['prefix'])}, not {VENV}")
    settings = read_text(os.path.join(venv, "pyvenv.cfg"))
    origin = re.search(r"^home\s*=\s*(.+?)/bin$", settings, re.MULTILINE)
    places = [facts["base_prefix"], *([origin[1]] if origin else [])]  # a base may link its Python to another prefix
    if not any(same_place(place, (home, image.path(home))) for place in places):
        faults.append(f"it belongs to the Python at {' or '.join(places)}, the manifest says {home}")
    if re.search(r"^include-system-site-packages\s*=\s*true", settings, re.MULTILINE | re.IGNORECASE):
        faults.append(f"{VENV}/pyvenv.cfg lets the base's own packages in (include-system-site-packages = true)")
    return judged(faults, f"Python {facts['version']} in {VENV}, of {home}")


def same_place(path: str, others: Iterable[str]) -> bool:
    """Whether a path is one of the others, links followed."""
    return os.path.realpath(path) in {os.path.realpath(other) for other in others}


@check("static.base")
def base_check(image: Image) -> Outcome:
    """The version files of CANN say what the manifest says, toolkit and NNAL the target's; its scripts are there."""
    base, cann = image.manifest["base"], image.manifest["target"]["cann"].lower()
    faults, seen = [], []
    for item in base["version_files"]:
        text = read_text(image.path(item["path"]))
        found = cann_version(text)
        seen.append((item["name"], found or "unknown", item["path"]))
        wanted = cann if item["name"].lower() in {"toolkit", "nnal"} else item["version"].lower()
        recorded = "" if item["version"].lower() == wanted else f" (the manifest records {item['version']})"
        if not os.path.isfile(image.path(item["path"])):
            faults.append(f"{item['name']}: {item['path']} does not exist")
        elif not found:
            faults.append(f"{item['name']}: {item['path']} states no CANN version")
        elif found != wanted or recorded:
            faults.append(f"{item['name']} is {found} ({item['path']}), the target's CANN is {wanted}{recorded}")
    said = "; ".join(f"{name} {version} ({path})" for name, version, path in seen)
    if faults and len({version for _, version, _ in seen}) > 1:
        faults.insert(0, f"parts of CANN differ: {said}")
    needed = [base["toolkit_home"], *base["set_env"]]
    faults += [f"{path} does not exist" for path in needed if not os.path.exists(image.path(path))]
    if not seen:
        faults.append("the manifest names no version file of CANN")
    return judged(faults, f"CANN {cann}: {said}")


@check("static.wheels")
def wheels_check(image: Image) -> Outcome:
    """Each distribution of the manifest is installed once, in its version; nothing else but the manifest's sources."""
    wanted = {normal_name(item["name"]): item["version"] for item in image.manifest["wheels"]}
    sources = {normal_name(item["name"]) for item in image.manifest["sources"]}
    found: dict[str, list[Distribution]] = defaultdict(list)
    for item in image.distributions:
        found[item.key].append(item)
    faults = []
    for name, version in wanted.items():
        copies = found.get(name, [])
        if not copies:
            faults.append(f"{name} {version} is not installed")
        elif len(copies) > 1:
            faults.append(
                f"{name} is installed {len(copies)} times: {', '.join(sorted(copy.folder for copy in copies))}"
            )
        elif not same_version(version, copies[0].version):
            faults.append(f"{name} is {copies[0].version}, the manifest says {version}")
    extra = sorted(set(found) - set(wanted) - sources)
    elsewhere = [name for name in extra if denied_by(image, name) or name in clashing(image)]
    faults += [f"{name} {found[name][0].version} is not in the manifest" for name in extra if name not in elsewhere]
    told = f"; also {', '.join(elsewhere)}: see static.denied and static.exclusive" if elsewhere else ""
    return judged(faults, f"{len(wanted)} distributions as in the manifest{told}")


# Bytes. Above are shared libraries and data (1.4 of 1.9 GiB, but 100 of 35,000 files), where reading costs most from a
# cold disk and a changed file nearly always has another size. 35,000 files, warm, 2 busy cores: sizes alone 0.8 s,
# hashes below 1 MiB 2.1 s, all hashes 4.1 s.
HASH_BELOW = 1 << 20


class Recorded(NamedTuple):
    """One row of a RECORD. `size` None and `digest` "" where the row has none."""

    path: str
    digest: str
    size: int | None


def records(image: Image, item: Distribution) -> list[Recorded] | None:
    """The RECORD of a distribution, paths absolute on this machine; None when it has none."""
    import csv  # noqa: PLC0415 - 3 ms that only this check needs

    path = os.path.join(image.site, item.folder, "RECORD")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError:
        return None
    found = []
    for name, digest, size in ((*row, "", "")[:3] for row in rows):
        where = f"{image.site}/{name}"
        found.append(
            Recorded(os.path.normpath(where) if ".." in name else where, digest, int(size) if size.isdigit() else None)
        )
    return found


def all_records(image: Image) -> dict[str, list[Recorded] | None]:
    """RECORD by normalised name, of the distributions that the manifest lists."""
    wanted = {normal_name(item["name"]) for item in image.manifest["wheels"]}
    return dict(
        image.remember(
            "records", lambda: {item.key: records(image, item) for item in image.distributions if item.key in wanted}
        )
    )


@check("static.files")
def files_check(image: Image) -> Outcome:
    """Every file of every distribution is as its RECORD says (size; hash below 1 MiB), and so are the manifest's."""
    sizes = {entry.path: entry.size for entry in image.tree(VENV) if not stat.S_ISLNK(entry.mode)}
    patched = {image.path(file["path"]) for patch in image.manifest["patches"] for file in patch["files"]}
    owners: dict[str, list[tuple[str, Recorded]]] = defaultdict(list)
    faults = []
    for name, rows in all_records(image).items():
        if rows is None:
            faults.append(f"{name}: has no RECORD")
            continue
        for row in rows:
            if row.path not in patched and not row.path.endswith((".pyc", "/RECORD")):
                owners[row.path].append((name, row))
    bad: dict[str, list[str]] = defaultdict(list)
    paths = list(owners)
    blocks = [paths[at : at + 500] for at in range(0, len(paths), 500)]
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing lets go of the interpreter's lock
        found = pool.map(lambda block: [altered(path, owners[path], sizes) for path in block], blocks)
        for path, what in zip(paths, chain.from_iterable(found), strict=True):
            if what:
                bad[owners[path][0][0]].append(f"{image.shown(path)} {what}")
    for name, what_all in bad.items():
        more = f" and {len(what_all) - 3} more" if len(what_all) > 3 else ""
        faults.append(f"{name}: reinstalled or overwritten: {'; '.join(what_all[:3])}{more}")
    faults += listed_files(image)
    return judged(faults, f"{len(owners)} files of {len(all_records(image))} distributions as recorded")


def altered(path: str, owners: Sequence[tuple[str, Recorded]], sizes: Mapping[str, int]) -> str:
    """How a file departs from what its owners recorded; "" when it is as one of them says (the one that came last)."""
    size = sizes.get(path)
    if size is None:
        try:
            size = os.stat(path).st_size  # a link, or outside the venv
        except OSError:
            return "is missing"
    rows = [row for _, row in owners]
    sized = [row for row in rows if row.size is None or row.size == size]
    if not sized:
        return f"has {size} bytes, recorded are {rows[0].size}"
    hashes = {row.digest.partition("=")[2] for row in sized if row.digest.startswith("sha256=")}
    if size >= HASH_BELOW or not hashes or any(not row.digest for row in sized):
        return ""
    try:
        with open(path, "rb") as file:
            found = hashlib.sha256(file.read()).digest()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if url_base64(found) in hashes else "has other content"


def url_base64(digest: bytes) -> str:
    """A digest as RECORD writes it."""
    import base64  # noqa: PLC0415

    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def listed_files(image: Image) -> list[str]:
    """Faults of the files that the manifest's checks name."""
    faults = []
    for item in image.manifest["checks"]["files"]:
        path = image.path(item["path"])
        if not os.path.exists(path):
            faults.append(f"{item['path']} does not exist")
        elif item["sha256"] and digest_of(path) != bare(item["sha256"]):
            faults.append(f"{item['path']} has other content than the manifest says")
    return faults


def bare(digest: str) -> str:
    """The hex of a digest, with or without its algorithm in front."""
    return digest.rpartition(":")[2]


@check("static.patches")
def patches_check(image: Image) -> Outcome:
    """Every patched file has the patched content, and so has the .pyc that Python would run in its place."""
    faults, count = [], 0
    for patch in image.manifest["patches"]:
        for file in patch["files"]:
            count += 1
            what = patch_fault(image, file)
            if what:
                faults.append(f"{patch['name']} ({patch['component']}): {file['path']} {what}")
    if not image.manifest["patches"]:
        return passed("the manifest lists no patches")
    return judged(faults, f"{len(image.manifest['patches'])} patches in force, {count} files")


def patch_fault(image: Image, file: Mapping[str, Any]) -> str:
    """How a patched file departs from its state after the patch; "" when it does not."""
    path = image.path(file["path"])
    if not os.path.exists(path):
        return "" if file["after"] is None else "does not exist"
    if file["after"] is None:
        return "still exists, the patch removes it"
    found = digest_of(path)
    if found == bare(file["after"]):
        return "is patched, but its .pyc is of another source: the patch is not in force" if stale_pyc(path) else ""
    if file["before"] and found == bare(file["before"]):
        return "is not patched"
    return "has neither the patched nor the original content"


def stale_pyc(path: str) -> bool:
    """Whether Python would run a hash-based, unchecked .pyc made from another source (PEP 552)."""
    if not path.endswith(".py"):
        return False
    folder, name = os.path.split(path)
    with open(path, "rb") as file:
        wanted = importlib.util.source_hash(file.read())
    for compiled in glob.glob(os.path.join(glob.escape(folder), "__pycache__", glob.escape(name[:-3]) + ".*.pyc")):
        with open(compiled, "rb") as file:
            head = file.read(16)
        if (
            len(head) == 16 and int.from_bytes(head[4:8], "little") == 1 and head[8:] != wanted
        ):  # bit 0 hash, bit 1 checked
            return True
    return False


LISTS = {
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "LD_PRELOAD",
    "LIBRARY_PATH",
    "CPATH",
    "PKG_CONFIG_PATH",
    "MANPATH",
    "CMAKE_PREFIX_PATH",
}


@check("static.env")
def env_check(image: Image) -> Outcome:
    """The environment is the manifest's in this process, in a login shell and in process 1 (behind the entrypoint)."""
    views = {"this process": dict(image.env)}
    notes = []
    for name, look in (("a login shell (bash -lc)", login_env), ("process 1", first_env)):
        found = look(image)
        if isinstance(found, str):
            notes.append(f"{name} not compared: {found}")
        else:
            views[name] = found
    where: dict[str, list[str]] = defaultdict(list)
    for view, env in views.items():
        for fault in env_faults(image, env):
            where[fault].append(view)
    faults = [f"{fault} (in {', '.join(names)})" for fault, names in where.items()]
    good = f"{len(image.manifest['env'])} variables, the same in {', '.join(views)}"
    outcome = judged(faults, good)
    return replace(outcome, details=(*outcome.details, *notes)) if notes else outcome


def env_faults(image: Image, env: Mapping[str, str]) -> list[str]:
    """How an environment departs from the manifest's."""
    faults = []
    for name, wanted in image.manifest["env"].items():
        found = env.get(name)
        if found is None:
            faults.append(f"{name} is not set, the manifest says {_shown(wanted)}")
        elif is_list(name, wanted):
            missing = out_of_order(entries(name, wanted), entries(name, found))
            if missing:
                faults.append(f"{name} lacks {missing}, or has it out of order")
        elif found != wanted:
            faults.append(f"{name} is {_shown(found)}, the manifest says {_shown(wanted)}")
    home, abi = env.get("ATB_HOME_PATH", ""), image.manifest["base"]["atb_abi"]
    chosen = re.search(r"cxx_abi_([01])(/|$)", home)
    if chosen and int(chosen[1]) != abi:
        faults.append(f"ATB_HOME_PATH chooses the C++ ABI {chosen[1]} ({home}), torch needs {abi}")
    return faults


def is_list(name: str, value: str) -> bool:
    """Whether a variable is a list of paths, where others may stand between the manifest's."""
    return name in LISTS or (":" in value and all(part.startswith("/") for part in value.split(":") if part))


def entries(name: str, value: str) -> list[str]:
    """The entries of a list variable, as paths without doubled or trailing slashes."""
    parts = re.split(r"[:\s]+" if name == "LD_PRELOAD" else ":", value)
    return [os.path.normpath(part).replace("//", "/") for part in parts if part]


def out_of_order(wanted: Sequence[str], found: Sequence[str]) -> str:
    """The first entry of `wanted` that `found` does not have behind the ones before it; "" when all are in order."""
    rest = iter(found)
    return next((entry for entry in wanted if entry not in rest), "")


def login_env(image: Image) -> dict[str, str] | str:
    """The environment of a login shell, or why there is none."""
    mark = "cannery-environment-follows"
    try:
        child = run(image, ["bash", "-lc", f"printf '\\0{mark}\\0'; env -0"])
    except OSError as error:
        return f"bash: {error.strerror}"
    _, found, text = child.out.partition(f"\0{mark}\0")
    return parse_env(text) if found and child.code == 0 else f"bash {ending(child.code, image.options.timeout)}"


def first_env(image: Image) -> dict[str, str] | str:
    """The environment that process 1 started with, or why it says nothing about this image."""
    try:
        if os.readlink(image.path("/proc/1/ns/mnt")) != os.readlink(image.path("/proc/self/ns/mnt")):
            return "it is not of this container"
    except OSError:
        pass  # not readable for other users; the file itself decides
    try:
        with open(image.path("/proc/1/environ"), "rb") as file:
            return parse_env(file.read().decode("utf-8", "replace"))
    except OSError as error:
        return f"{error.strerror}"


def parse_env(text: str) -> dict[str, str]:
    """NAME=value records that end in NUL."""
    return {name: value for name, found, value in (item.partition("=") for item in text.split("\0")) if found}


LIBRARY_FOLDERS = (
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    "/usr/lib/*-linux-gnu",
    "/lib/*-linux-gnu",
)


@check("static.preload")
def preload_check(image: Image) -> Outcome:
    """Each LD_PRELOAD entry exists and is mapped in this process: for ld.so a wrong path is only a warning (T06)."""
    wanted = entries("LD_PRELOAD", image.manifest["env"].get("LD_PRELOAD", ""))
    names = list(dict.fromkeys([*wanted, *entries("LD_PRELOAD", image.env.get("LD_PRELOAD", ""))]))
    mapped = {
        line.split(None, 5)[5].strip() for line in read_text(image.path("/proc/self/maps")).splitlines() if "/" in line
    }
    faults = []
    for name in names:
        path = image.path(name) if name.startswith("/") else first_found(image, name)
        if not path or not os.path.exists(path):
            near = candidates(image, os.path.basename(name))
            faults.append(
                f"{name} does not exist" + (f"; found: {', '.join(near)}" if near else "; nothing like it was found")
            )
        elif os.path.realpath(path) not in mapped:
            faults.append(f"{name} exists but is not loaded in this process{why_not_loaded(image, name, path)}")
    return judged(faults, f"{', '.join(names)} loaded" if names else "nothing is to be preloaded")


def first_found(image: Image, name: str) -> str:
    """Where the loader finds a library by its name; "" when it does not."""
    if name in system_libraries(image):
        folders = [*entries("LD_LIBRARY_PATH", image.env.get("LD_LIBRARY_PATH", "")), *default_folders(image)]
        return next(
            (path for path in (image.path(f"{folder}/{name}") for folder in folders) if os.path.exists(path)), ""
        )
    return ""


def candidates(image: Image, name: str) -> list[str]:
    """Files that may have been meant by a preload entry that does not exist."""
    stem = name.split(".so", maxsplit=1)[0]
    found = chain.from_iterable(
        glob.glob(image.path(f"{folder}/{glob.escape(stem)}.so*")) for folder in LIBRARY_FOLDERS
    )
    return sorted({image.shown(path) for path in found if os.path.exists(path)})


def why_not_loaded(image: Image, name: str, path: str) -> str:
    """A reason that can be seen from the file or the environment."""
    try:
        elf = read_elf(path)
    except (OSError, ValueError) as error:
        return f": {error}"
    if elf is None:
        return ": it is not a shared library"
    if elf.machine != MACHINES[image.manifest["target"]["arch"]]:
        return ": it is for another processor"
    return (
        "" if name in entries("LD_PRELOAD", image.env.get("LD_PRELOAD", "")) else ": LD_PRELOAD does not name it here"
    )


# Libraries that the host's driver mount brings (driver/lib64/driver and lib64/common); an image has none of them.
DRIVER_LIBRARIES = re.compile(
    r"lib(ascend_hal|ascend_rdma_lite|c_sec|dcmi|devmmap|drvdsmi_host|drvdevdrv|drvhdc_host|mmpa|tsdclient_driver|slog_drv)\.so(\.\d+)*"
)
# Threading layers of numba that its wheel links and does not bring; numba tries them, and does without.
OPTIONAL_LIBRARIES = re.compile(r".*/numba/.* needs lib(tbb\.so\.12|gomp\.so\.1(\.0\.0)?), .*")


@check("static.libraries")
def libraries_check(image: Image) -> Outcome:
    """Each shared library of the venv finds what it needs; the manifest's libraries load, its extensions are there."""
    arch = MACHINES[image.manifest["target"]["arch"]]
    faults, elves = read_libraries(image)
    inside = {os.path.basename(path) for path in elves} | {elf.soname for elf in elves.values()}
    allowed = [re.compile(item) for item in image.manifest["checks"].get("library_allow", ())]
    driver: set[str] = set()
    looked = 0
    for path, elf in elves.items():
        extension = re.search(r"\.(cpython-3|abi3)", os.path.basename(path)) is not None
        if (
            elf.machine != arch or elf.bits != 64
        ):  # wheels carry helpers for other processors; an extension module is none
            faults += [f"{image.shown(path)} is for another processor"] if extension and f"-{arch}" not in path else []
            continue
        looked += 1
        for name in elf.needed:
            if name in inside or resolves(image, path, elf, name):
                continue
            fault = f"{image.shown(path)} needs {name}, which is not found"
            if DRIVER_LIBRARIES.fullmatch(name):
                driver.add(name)
            elif not OPTIONAL_LIBRARIES.fullmatch(fault) and not any(item.search(fault) for item in allowed):
                faults.append(fault)
    faults += native_faults(image) + load_faults(image, driver)
    told = f"; {', '.join(sorted(driver))} come with the host's driver" if driver else ""
    return judged(faults, f"{looked} shared libraries find what they need{told}")


def read_libraries(image: Image) -> tuple[list[str], dict[str, Elf]]:
    """(faults, dynamic sections by path) of the shared libraries below the venv and of those in the manifest."""
    faults: list[str] = []
    elves: dict[str, Elf] = {}
    named = [image.path(path) for path in image.manifest["checks"]["libraries"]]
    below = [
        entry.path for entry in image.tree(VENV) if stat.S_ISREG(entry.mode) and re.search(r"\.so(\.\d+)*$", entry.path)
    ]
    for path in [*below, *(path for path in named if os.path.exists(path))]:
        try:
            elf = read_elf(path)
        except (OSError, ValueError) as error:
            faults.append(f"{image.shown(path)}: {error}")
            continue
        if elf is None and path in named:
            faults.append(f"{image.shown(path)} is not a shared library")
        elif elf is not None and not any(name.startswith("libc.musl-") for name in elf.needed):
            elves[path] = elf
    return faults, elves


def resolves(image: Image, path: str, elf: Elf, name: str) -> bool:
    """Whether the loader finds a library by the file's run path, LD_LIBRARY_PATH, its cache or the default folders."""
    if "/" in name:
        return os.path.exists(image.path(name))
    if name in system_libraries(image):
        return True
    origin = os.path.dirname(os.path.realpath(path))
    for folder in elf.runpath:
        where = re.sub(r"\$(ORIGIN|\{ORIGIN\})", lambda _: origin, folder)
        where = where if "ORIGIN" in folder else image.path(where)
        if os.path.exists(os.path.join(where, name)):
            return True
    return False


def default_folders(image: Image) -> list[str]:
    """Where the loader of this architecture looks without being told."""
    triplet = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[image.manifest["target"]["arch"]]
    return [f"{top}/{name}".rstrip("/") for top in ("/lib", "/usr/lib") for name in (triplet, "")] + [
        "/lib64",
        "/usr/lib64",
    ]


def system_libraries(image: Image) -> set[str]:
    """Names that the loader finds for every program of the image."""

    def look() -> set[str]:
        folders = [*entries("LD_LIBRARY_PATH", image.env.get("LD_LIBRARY_PATH", "")), *default_folders(image)]
        names: set[str] = set()
        for folder in dict.fromkeys(folders):
            where = image.path(folder) if folder.startswith("/") else os.path.join(image.cwd, folder)
            if os.path.isdir(where):
                names |= {
                    name for name in os.listdir(where) if ".so" in name and os.path.exists(os.path.join(where, name))
                }
        cache = cached_libraries(image.path("/etc/ld.so.cache"))
        return names | {name for name, path in cache.items() if os.path.exists(image.path(path))}

    return set(image.remember("system libraries", look))


def native_faults(image: Image) -> list[str]:
    """Compiled extensions that the manifest promises and the image lacks (a reinstall without kernels, P09)."""
    return [
        f"{item['component']}: no compiled extension {item['path']}"
        for item in image.manifest["checks"]["native"]
        if not any(os.path.getsize(path) for path in glob.glob(image.path(item["path"]), recursive=True))
    ]


def load_faults(image: Image, driver: set[str]) -> list[str]:
    """Loads the manifest's libraries in a child; what lacks a library of the driver passes, and it is noted."""
    paths = image.manifest["checks"]["libraries"]
    preloaded = entries(
        "LD_PRELOAD", image.manifest["env"].get("LD_PRELOAD", "")
    )  # static.preload tells when one is gone
    faults = []
    answers = work(image, [{"do": "library", "path": image.path(path)} for path in paths]) if paths else []
    for path, answer in zip(paths, answers, strict=True):
        missing = missing_library(answer.causes)
        if answer.ok:
            continue
        if not os.path.exists(image.path(path)):
            faults += [] if path in preloaded else [f"{path} does not exist"]
        elif DRIVER_LIBRARIES.fullmatch(missing):
            driver.add(missing)
        else:
            faults.append(f"{path} does not load: {'; '.join(answer.causes)}")
    return faults


def clashing(image: Image) -> set[str]:
    """Installed names of the manifest's exclusive groups of which more than one is installed."""
    here = {item.key for item in image.distributions}
    groups = [{normal_name(name) for name in group} & here for group in image.manifest["exclusive"]]
    return {name for group in groups if len(group) > 1 for name in group}


@check("static.exclusive")
def exclusive_check(image: Image) -> Outcome:
    """No two distributions that overwrite each other: triton and triton-ascend both own the folder triton (T07)."""
    here = {item.key: item for item in image.distributions}
    faults = []
    for group in image.manifest["exclusive"]:
        both = [here[name] for name in map(normal_name, group) if name in here]
        if len(both) > 1:
            faults.append(f"{' and '.join(f'{item.name} {item.version}' for item in both)} are installed together")
    return judged(faults, f"{len(image.manifest['exclusive'])} groups, at most one of each installed")


def denied_by(image: Image, name: str) -> str:
    """The pattern of the manifest's deny list that a name matches; "" when none does."""
    return next(
        (item for item in image.manifest["deny"] if fnmatch.fnmatchcase(name, item.lower().replace("_", "-"))), ""
    )


@check("static.denied")
def denied_check(image: Image) -> Outcome:
    """Nothing of the deny list (CUDA packages) is installed; who asked for it is named."""
    faults = []
    clash = clashing(image)  # told by static.exclusive
    for item in image.distributions:
        pattern = denied_by(image, item.key)
        if pattern and item.key not in clash:
            askers = sorted({other.name for other in image.distributions if item.key in other.requires})
            asked = f", asked by {', '.join(askers)}" if askers else ""
            faults.append(f"{item.name} {item.version} is installed (denied: {pattern}){asked}")
    return judged(faults, f"none of {len(image.manifest['deny'])} patterns is installed")


# Names that wheels put at the top by mistake (verl's has tests and scripts) and that any working folder may hold.
COMMON_NAMES = {
    "test",
    "tests",
    "testing",
    "doc",
    "docs",
    "example",
    "examples",
    "script",
    "scripts",
    "benchmark",
    "benchmarks",
}
COMMON_NAMES |= {"tool", "tools", "bin", "data", "src", "build", "dist", "lib", "config", "configs", "requirements"}

SEEK = r"""
import importlib.util, json, os, sys, sysconfig
names = json.loads(sys.stdin.read())
own = {os.path.realpath(path) for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))}
base = os.path.realpath(sys.base_prefix)  # whether its packages are let in is static.python's to say
bases = tuple(base + end for end in ("/lib/", "/lib64/", "/local/lib/")) if sys.base_prefix != sys.prefix else ()
answer = {name: {"origin": "", "hits": []} for name in names}
for name in names:
    try: spec = importlib.util.find_spec(name)
    except BaseException: spec = None
    if spec is not None:
        places = list(spec.submodule_search_locations or [])
        answer[name]["origin"] = spec.origin if spec.has_location and spec.origin else (places[0] if places else "")
done = set()
for entry in sys.path:
    folder = os.path.realpath(entry or os.getcwd())
    if folder in done or folder in own or folder.startswith(bases): continue
    done.add(folder)
    try: here = os.listdir(folder)
    except OSError: continue
    for item in here:
        path = os.path.join(folder, item)
        name, kind = item.split(".")[0], ""
        if name not in answer: continue
        if item == name and os.path.isdir(path):
            kind = "package" if os.path.exists(os.path.join(path, "__init__.py")) else "bare"
        elif item.endswith((".py", ".so", ".pyc")): kind = "module"
        if kind: answer[name]["hits"].append([path, kind, entry in ("", os.getcwd())])
print("\n" + json.dumps(answer))
"""


@check("static.shadow")
def shadow_check(image: Image) -> Outcome:
    """Modules of the manifest's distributions come from their one place, seen from / and from the working folder."""
    names = module_names(image)
    homes = [image.site, *(image.path(item["path"]) for item in image.manifest["sources"])]
    faults: dict[str, None] = {}
    folders = list(dict.fromkeys([image.path("/"), os.path.realpath(image.cwd)]))
    for folder in folders:
        child = run(image, [image.python, "-c", SEEK], cwd=folder, text=json.dumps(sorted(names)))
        if child.code != 0:
            return failed(f"from {folder}: {ending(child.code, image.options.timeout)}", child.err.splitlines()[-3:])
        for name, found in json.loads(child.out.splitlines()[-1]).items():
            faults.update(dict.fromkeys(shadow_faults(image, name, found, homes)))
    return judged(
        list(faults), f"{len(names)} modules, each from one place, seen from {' and '.join(map(image.shown, folders))}"
    )


def module_names(image: Image) -> set[str]:
    """Top-level modules of the manifest's distributions (by RECORD) and of the imports it checks."""
    names = {item["module"].split(".")[0] for item in image.manifest["checks"]["imports"]}
    start = len(image.site) + 1
    for rows in all_records(image).values():
        for row in rows or ():
            first, more, _ = row.path[start:].partition("/")
            if row.path.startswith(image.site) and (more or first.endswith((".py", ".so"))):
                names.add(first if more else first.split(".")[0])
    return {name for name in names if name.isidentifier() and not name.startswith("__")} - COMMON_NAMES


def shadow_faults(image: Image, name: str, found: Mapping[str, Any], homes: Sequence[str]) -> list[str]:
    """Why a module is not the one that was installed: another copy, another place, a bare folder where one works."""
    hits = [(path, kind) for path, kind, here in found["hits"] if kind != "bare" or here]
    real = [path for path, kind in hits if kind != "bare"]
    at_home = [path for path in [*(hit[0] for hit in found["hits"]), found["origin"]] if path and below(path, homes)]
    home, origin = (at_home[0] if at_home else ""), found["origin"]
    strange = [path for path, _ in hits if not below(path, homes)]
    places = {os.path.dirname(path) for path in real}
    if home and (strange or len(places) > 1):
        other = strange or [path for path in real if os.path.dirname(path) != os.path.dirname(home)]
        return [
            f"{name}: {image.shown(other[0])} stands beside {image.shown(home)}; import takes {image.shown(origin)}"
        ]
    if origin and not below(origin, homes):
        wanted = " or ".join(image.shown(path) for path in homes)
        return [f"{name} comes from {image.shown(origin)}, not from {wanted}"] if at_home or strange else []
    return []


def below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path lies in one of the folders, links followed."""
    real = os.path.realpath(path)
    return any(real.startswith(os.path.realpath(folder) + os.sep) for folder in folders)


@check("static.pip-check")
def pip_check(image: Image) -> Outcome:
    """`pip check` says nothing but what the manifest allows."""
    child = run(image, [image.python, "-m", "pip", "--disable-pip-version-check", "--no-input", "check"])
    if child.code is None or child.code < 0:
        return failed(f"pip check: {ending(child.code, image.options.timeout)}")
    if "No module named pip" in child.err:
        return failed(f"pip is not installed in {VENV}")
    allowed = [re.compile(item) for item in image.manifest["checks"]["pip_check_allow"]]
    lines = [
        line.strip()
        for line in child.out.splitlines()
        if line.strip() and line.strip() != "No broken requirements found."
    ]
    faults = [line for line in lines if not any(item.search(line) for item in allowed)]
    if child.code != 0 and not lines:
        return failed(f"pip check ended with code {child.code}", child.err.splitlines()[-3:])
    told = f"; {len(lines) - len(faults)} lines allowed by the manifest" if len(lines) > len(faults) else ""
    return judged(faults, f"no broken requirements{told}")


@check("static.readable")
def readable_check(image: Image) -> Outcome:
    """Other users can read all that Python needs, nothing of it lies below /root, and the image's user has a name."""
    base = image.manifest["base"]
    trees = [VENV, *(item["path"] for item in image.manifest["sources"])]
    single = [
        base["python_home"],
        base["toolkit_home"],
        *base["set_env"],
        "/opt/cannery/verify.py",
        image.shown(image.manifest_path),
    ]
    faults = []
    for path in [VENV, f"{VENV}/bin/python", *single, *trees[1:]]:
        faults += closed_on_the_way(image, path)
    count = 0
    for tree in trees:
        for entry in image.tree(tree):
            count += 1
            fault = entry_fault(image, entry)
            faults += [fault] if fault else []
    user = image.manifest["user"]
    if user and not re.search(
        rf"^{re.escape(user['name'])}:[^:]*:{user['uid']}:", read_text(image.path("/etc/passwd")), re.MULTILINE
    ):
        faults.append(f"/etc/passwd has no user {user['name']} with uid {user['uid']}")
    return judged(list(dict.fromkeys(faults)), f"{count} files and folders are readable by other users")


def entry_fault(image: Image, entry: Entry) -> str:
    """Why another user could not use a name of a tree; "" when they can."""
    if stat.S_ISLNK(entry.mode):
        target = os.readlink(entry.path)
        return f"{image.shown(entry.path)} points below /root ({target})" if target.startswith(PRIVATE) else ""
    needed = 0o005 if stat.S_ISDIR(entry.mode) else 0o004
    if entry.mode & needed == needed:
        return ""
    return f"{image.shown(entry.path)} is closed to other users (mode {stat.S_IMODE(entry.mode):04o})"


def closed_on_the_way(image: Image, path: str) -> list[str]:
    """Faults of the folders above a path, of the path, and of what its links lead to."""
    faults = []
    for seen in dict.fromkeys([path, image.shown(os.path.realpath(image.path(path)))]):
        if seen.startswith(PRIVATE):
            faults.append(f"{path} lies below /root ({seen})")
        parts = seen.strip("/").split("/")
        for end_at in range(1, len(parts) + 1):
            name = "/" + "/".join(parts[:end_at])
            try:
                mode = os.stat(image.path(name)).st_mode
            except OSError:
                break  # that it is missing is another check's finding
            needed = 0o001 if stat.S_ISDIR(mode) else 0o004
            if mode & needed != needed:
                faults.append(f"{name} is closed to other users (mode {stat.S_IMODE(mode):04o})")
    return faults


SETTINGS: tuple[str, ...] = (
    "/etc/pip.conf",
    "/etc/xdg/pip/pip.conf",
    "/root/.pip/pip.conf",
    "/root/.config/pip/pip.conf",
    f"{VENV}/pip.conf",
    "/etc/uv/uv.toml",
)
SETTINGS += (
    "/root/.config/uv/uv.toml",
    "/root/.netrc",
    "/root/.git-credentials",
    "/root/.config/git/credentials",
    "/root/.docker/config.json",
)
AUTHORITIES = ("/usr/local/share/ca-certificates/*", "/etc/pki/ca-trust/source/anchors/*")
CACHES = (
    "/root/.cache/*",
    "/var/lib/apt/lists/*",
    "/var/cache/apt/archives/*.deb",
    "/var/cache/apt/*.bin",
    "/var/cache/dnf/*",
    "/var/cache/yum/*",
)
PROXIES = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)
BUNDLES = {
    "PIP_CERT",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "SSL_CERT_DIR",
}


@check("static.leftovers")
def leftovers_check(image: Image) -> Outcome:
    """Nothing of the build stayed: pip settings, credentials, certificates, proxies, caches, installer's files."""
    faults = [f"{path} was left in the image" for path in SETTINGS if ours(image, image.path(path))]
    for pattern in AUTHORITIES:
        faults += [
            f"{image.shown(path)}: a certificate of the build was left"
            for path in glob.glob(image.path(pattern))
            if ours(image, path)
        ]
    started = container_start(image)
    for pattern in CACHES:
        for path in sorted(glob.glob(image.path(pattern))):
            kept = os.path.basename(path) in {"lock", "partial", "auxfiles"} and not has_files(path)
            if not kept and ours(image, path) and os.lstat(path).st_mtime < started:
                faults.append(f"{image.shown(path)}: a cache was left")
    faults += [
        f"{image.shown(entry.path)}: the installer's own file was left"
        for entry in image.tree(VENV)
        if entry.path.endswith(("/uv_cache.json", f"{VENV}/.lock"))
    ]
    faults += baked(image)
    faults += [
        f"{name} is set in this process"
        for name, value in image.env.items()
        if name.startswith(("PIP_", "UV_")) and "://" in value
    ]
    told = sorted(
        name for name in image.env if (PROXIES.fullmatch(name) or name in BUNDLES) and name not in image.manifest["env"]
    )
    if told and not faults:
        return warning(
            f"{', '.join(told)} set in this container: right when given at its start, wrong when left by the build"
        )
    return judged(faults, "no settings, certificates, proxies or caches of the build")


def baked(image: Image) -> list[str]:
    """Settings of the build in the ENV of the image and in the files that every shell reads."""
    faults = [
        f"ENV {name} was left in the image"
        for name, value in image.manifest["env"].items()
        if PROXIES.fullmatch(name) or name in BUNDLES or (name.startswith(("PIP_", "UV_")) and "://" in value)
    ]
    files = [
        "/etc/environment",
        "/etc/profile.d/*.sh",
        "/etc/apt/apt.conf.d/*",
        "/etc/apt/apt.conf",
        "/etc/dnf/dnf.conf",
        "/etc/yum.conf",
    ]
    setting = re.compile(
        r"^[^#\n]*(https?_proxy|all_proxy|PIP_\w*URL|Acquire::\w+::proxy)\b|^proxy\s*=", re.IGNORECASE | re.MULTILINE
    )
    for path in chain.from_iterable(sorted(glob.glob(image.path(pattern))) for pattern in files):
        found = setting.search(read_text(path))
        if found and ours(image, path):
            faults.append(f"{image.shown(path)} sets {(found[1] or 'proxy').strip()}")
    return faults


def ours(image: Image, path: str) -> bool:
    """Whether a path exists in the image itself, and not in what a user mounts there."""

    def mounts() -> list[str]:
        lines = (line.split() for line in read_text(image.path("/proc/self/mountinfo")).splitlines())
        return [fields[4] + "/" for fields in lines if len(fields) > 4 and fields[4] != "/"]

    seen = image.shown(path) + "/"
    return os.path.lexists(path) and not any(seen.startswith(place) for place in image.remember("mounts", mounts))


def has_files(path: str) -> bool:
    """Whether a file has content, or a folder has names."""
    return any(os.scandir(path)) if os.path.isdir(path) else os.path.getsize(path) > 0


def container_start(image: Image) -> float:
    """When process 1 started, in seconds since the epoch: a younger cache is not the build's. Infinity if unknown."""
    boot = re.search(r"^btime (\d+)$", read_text(image.path("/proc/stat")), re.MULTILINE)
    fields = read_text(image.path("/proc/1/stat")).rpartition(")")[2].split()
    if not boot or len(fields) < 20:
        return float("inf")
    return int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


@check("static.shm")
def shm_check(image: Image) -> Outcome:
    """/dev/shm is large enough for the workers of this profile (a warning: the user's flag sets it, not the image)."""
    wanted = image.manifest["shm_min_bytes"]
    try:
        about = os.statvfs(image.path("/dev/shm"))
    except OSError as error:
        return warning(f"/dev/shm: {error.strerror}; start the container with --shm-size={-(-wanted >> 20)}m")
    found = about.f_blocks * about.f_frsize
    if found < wanted:
        return warning(
            f"/dev/shm has {size_of(found)}, this profile wants {size_of(wanted)}: --shm-size={-(-wanted >> 20)}m"
        )
    return passed(f"/dev/shm has {size_of(found)}")


def size_of(count: int) -> str:
    """Bytes for people."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


# ---------------------------------------------------------------------------------------------------------------------
# Level import

PAIR = "import.torch-npu-pair"
MISSING = re.compile(r"(?:^|[\s'\"(:])([\w./+-]+\.so[\w.]*): cannot open shared object file")
WRONG_SOC = re.compile(
    r"soc[ _]?version.{0,60}(mismatch|not match|does not match|unsupported|not support)", re.IGNORECASE
)


def import_ids(manifest: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Check id → entries of `checks.imports`: one check a module (`import.<module>`), however many attributes."""
    found: dict[str, list[dict[str, Any]]] = {}
    for item in manifest["checks"]["imports"]:
        found.setdefault(f"import.{item['module']}", []).append(item)
    return found


def has_pair(manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest holds both torch and torch_npu."""
    names = {normal_name(item["name"]) for item in [*manifest["wheels"], *manifest["sources"]]}
    return {"torch", "torch-npu"} <= names


def import_outcomes(image: Image, wanted: Sequence[str]) -> dict[str, Outcome]:
    """Runs the import checks named by id, together in as few children as possible."""
    standin = image.manifest["base"]["kind"] == "standin"
    left_out = [name for name in wanted if standin and name in image.manifest["may_skip"]]
    names = [name for name in wanted if name not in left_out]
    table = import_ids(image.manifest)
    tasks = [
        {"do": "pair"}
        if name == PAIR
        else {
            "do": "import",
            "module": table[name][0]["module"],
            "attributes": [item["attribute"] for item in table[name] if item.get("attribute")],
        }
        for name in names
    ]
    outcomes = {name: skipped("stand-in: the manifest leaves it out on a stand-in base") for name in left_out}
    for name, answer in zip(names, work(image, tasks) if tasks else [], strict=True):
        wrong_soc = next((line.strip() for line in answer.noise.splitlines() if WRONG_SOC.search(line)), "")
        if not answer.ok:
            outcomes[name] = failed_import(image, answer)
        elif wrong_soc:
            outcomes[name] = failed(f"was built for another chip: {wrong_soc}")
        else:
            outcomes[name] = pair_outcome(image, answer) if name == PAIR else import_outcome(image, table[name], answer)
    return outcomes


def import_outcome(image: Image, items: Sequence[Mapping[str, Any]], answer: Answer) -> Outcome:
    """Judges an import that went through: the attributes that the manifest expects."""
    faults = []
    for item in items:
        if item.get("attribute") and item.get("equals") is not None:
            found = answer.result["values"][item["attribute"]]
            if found != item["equals"] and not same_version(item["equals"], found):
                faults.append(f"{item['module']}.{item['attribute']} is {found}, the manifest says {item['equals']}")
    version, file = answer.result["version"], answer.result["file"] or "(no file)"
    return judged(
        faults,
        f"{items[0]['module']}{' ' + version if version else ''} from {image.shown(file)}",
    )


def pair_outcome(image: Image, answer: Answer) -> Outcome:
    """Judges torch and torch_npu as imported: the manifest's versions, one release, one C++ ABI, and extension."""
    found, faults = answer.result, []
    versions = {normal_name(item["name"]): item["version"] for item in image.manifest["wheels"]}
    for module, name in (("torch", "torch"), ("torch_npu", "torch-npu")):
        wanted = versions.get(name, "")
        if wanted and not same_version(wanted, found[module]):
            faults.append(f"{module} is {found[module]} at import, the manifest says {wanted}")
    releases = [version_key(found[module])[0][1:2] for module in ("torch", "torch_npu")]
    if releases[0] != releases[1]:
        faults.append(f"torch_npu {found['torch_npu']} is not made for torch {found['torch']}")
    if not found["extension"].endswith(".so"):
        faults.append(f"torch_npu's C extension is not loaded (torch_npu._C: {found['extension'] or 'absent'})")
    abi = image.manifest["base"]["atb_abi"]
    if found["abi"] != abi:
        faults.append(f"torch has the C++ ABI {found['abi']}, ATB of this image {abi}")
    told = f"NPU available: {found['available']}"
    return judged(faults, f"torch {found['torch']} and torch_npu {found['torch_npu']}, C++ ABI {found['abi']}; {told}")


def missing_library(causes: Iterable[str]) -> str:
    """The library that the loader could not find, by the first cause that names one; "" when none does."""
    found = (match.group(1) for cause in causes for match in MISSING.finditer(cause))
    return os.path.basename(next(found, ""))


def failed_import(image: Image, answer: Answer) -> Outcome:
    """A failed import by its first cause: a missing library before the symptoms that follow from it (D02)."""
    noise = [line for line in answer.noise.splitlines() if line.strip()][-8:]
    missing = missing_library(answer.causes)
    if missing:
        return failed(f"{missing} is not found: {library_advice(image, missing)}", [*answer.causes, *noise])
    first = answer.causes[0]
    short = first if len(first) <= 200 else first[:199] + "…"
    return failed(short, [*answer.causes[short == first :], *noise])


def library_advice(image: Image, name: str) -> str:
    """Why the loader may not find a library: its folder is not in the environment, or the image does not hold it."""
    if DRIVER_LIBRARIES.fullmatch(name):
        return f"the host's driver brings it (mount {DRIVER}/lib64)"
    base = image.manifest["base"]
    known = entries("LD_LIBRARY_PATH", image.env.get("LD_LIBRARY_PATH", ""))
    wanted = entries("LD_LIBRARY_PATH", image.manifest["env"].get("LD_LIBRARY_PATH", ""))
    lost = [folder for folder in wanted if folder not in known]
    home = base["toolkit_home"]
    places = [
        *wanted,
        f"{home}/lib64",
        f"{home}/*/lib64",
        "/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_*/lib",
        "/usr/local/lib",
    ]
    there = sorted({path for folder in places for path in glob.glob(image.path(f"{folder}/{glob.escape(name)}"))})
    if there:
        folder = os.path.dirname(image.shown(there[0]))
        return f"it is in {folder}, which LD_LIBRARY_PATH lacks (set by {' and '.join(base['set_env']) or 'the image'})"
    gone = [path for path in [home, *base["set_env"]] if not os.path.exists(image.path(path))]
    if gone:
        return f"{', '.join(gone)} does not exist: the CANN toolkit is not in this image"
    if lost:
        return f"LD_LIBRARY_PATH lacks {', '.join(lost)} of the manifest"
    return f"no folder of LD_LIBRARY_PATH or of {home} holds it"


# ---------------------------------------------------------------------------------------------------------------------
# Level npu


@dataclass(frozen=True)
class Nodes:
    """The Ascend device nodes of /dev. `lacking`: those that belong to an NPU and are not there."""

    cards: tuple[str, ...]
    present: tuple[str, ...]
    lacking: tuple[str, ...]


def find_nodes(image: Image) -> Nodes:
    """Looks at /dev. Chip a5 has no devmm_svm any more (case D11)."""
    managers = ["/dev/davinci_manager", "/dev/hisi_hdc"]
    managers += [] if image.manifest["target"]["chip"] == "a5" else ["/dev/devmm_svm"]
    found = (image.shown(path) for path in glob.glob(image.path("/dev/davinci[0-9]*")))
    cards = tuple(sorted((path for path in found if path[12:].isdigit()), key=lambda path: int(path[12:])))
    present = [path for path in managers if os.path.exists(image.path(path))]
    lacking = [path for path in managers if path not in present]
    return Nodes(cards, (*cards, *present), tuple(lacking if cards else [*lacking, "/dev/davinci0"]))


def node_fault(image: Image, path: str) -> str:
    """Why this process cannot use a node that exists; "" when it can."""
    real = image.path(path)
    about = os.stat(real)
    if image.root == "/" and not stat.S_ISCHR(about.st_mode):
        return f"{path} is not a device (a mount of a missing file makes a folder)"
    if os.access(real, os.R_OK | os.W_OK):
        return ""
    owner, group = (
        name_of(image, kind, number) for kind, number in (("passwd", about.st_uid), ("group", about.st_gid))
    )
    me = f"this process is uid {os.geteuid()}, groups {', '.join(map(str, sorted({os.getegid(), *os.getgroups()})))}"
    if os.geteuid() == 0 or about.st_mode & 0o006 == 0o006:
        return f"{path} is closed to this container by its device rules: give the node with --device"
    mode = f"mode {stat.S_IMODE(about.st_mode):04o}"
    advice = f": add --group-add {about.st_gid}" if about.st_mode & 0o060 == 0o060 else ""
    return f"{path} belongs to {owner}:{group}, {mode}; {me}{advice}"


def name_of(image: Image, kind: str, number: int) -> str:
    """A user's or group's name and number, as the image's /etc/passwd or /etc/group has it."""
    column = re.search(rf"^([^:\n]*):[^:]*:{number}:", read_text(image.path(f"/etc/{kind}")), re.MULTILINE)
    return f"{column[1]}({number})" if column else str(number)


def manager_error(image: Image) -> int:
    """Errno of opening davinci_manager; 0 when it opens. A node that mknod made has no driver behind it: ENXIO."""
    try:
        os.close(os.open(image.path("/dev/davinci_manager"), os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or 0
    return 0


def five_points(image: Image) -> list[str]:
    """Nodes, mounts, driver, permission, environment: each ok or missing (case D16)."""
    nodes = find_nodes(image)
    mounts = [f"{DRIVER}/lib64", f"{DRIVER}/version.info", "/usr/local/bin/npu-smi"]
    unmounted = [path for path in mounts if not os.path.exists(image.path(path))]
    closed = [fault for fault in (node_fault(image, path) for path in nodes.present) if fault]
    lost = [name for name in image.manifest["env"] if name not in image.env]
    points = (
        ("nodes", [f"missing {', '.join(nodes.lacking)}"] if nodes.lacking else []),
        ("mounts", [f"missing {', '.join(unmounted)}"] if unmounted else []),
        ("driver", [] if driver_library(image) else ["missing libascend_hal.so"]),
        ("permission", closed if nodes.present else ["missing: no node to open"]),
        ("env", [f"missing {', '.join(lost)}"] if lost else []),
    )
    return [f"{name}: {'; '.join(faults) if faults else 'ok'}" for name, faults in points]


def driver_library(image: Image) -> str:
    """The driver's libascend_hal.so; "" when the driver is not mounted."""
    places = (f"{DRIVER}/lib64/driver", f"{DRIVER}/lib64", f"{DRIVER}/lib64/common")
    return next(
        (path for path in (f"{place}/libascend_hal.so" for place in places) if os.path.exists(image.path(path))), ""
    )


@check("npu.nodes")
def nodes_check(image: Image) -> Outcome:
    """All device nodes are there, and this user may use them."""
    nodes = find_nodes(image)
    faults = [f"{path} is missing" for path in nodes.lacking]
    faults += [fault for fault in (node_fault(image, path) for path in nodes.present) if fault]
    if not faults and manager_error(image) in {1, 13}:  # EPERM, EACCES: the container's device rules
        faults.append("/dev/davinci_manager may not be opened: give the node with --device, not as a mount")
    outcome = judged(
        faults, f"{len(nodes.cards)} cards: {', '.join(nodes.present)}", "device nodes: " + "; ".join(faults)
    )
    return outcome if not faults else replace(outcome, details=tuple(five_points(image)))


@check("npu.driver")
def driver_check(image: Image) -> Outcome:
    """The host's driver is mounted and answers behind the nodes, and no stub of its library comes first (case E05)."""
    found = driver_library(image)
    if not found:
        return failed(
            f"driver missing: no libascend_hal.so below {DRIVER}/lib64 (mount it from the host)", five_points(image)
        )
    if manager_error(image) in {6, 19}:  # ENXIO, ENODEV
        return failed("driver missing: /dev/davinci_manager has no driver behind it", five_points(image))
    folders = entries("LD_LIBRARY_PATH", image.env.get("LD_LIBRARY_PATH", ""))
    first = next((folder for folder in folders if os.path.exists(image.path(f"{folder}/libascend_hal.so"))), "")
    if not first:
        return failed(f"LD_LIBRARY_PATH does not lead to {found}")
    if not first.startswith(DRIVER):
        return failed(f"{first}/libascend_hal.so comes before the driver's ({found}) in LD_LIBRARY_PATH: a stub wins")
    version = re.search(r"^Version=(\S+)", read_text(image.path(f"{DRIVER}/version.info")), re.MULTILINE)
    return (
        passed(f"driver {version[1]}: {found}")
        if version
        else failed(f"{DRIVER}/version.info is missing or states no version")
    )


@check("npu.smi")
def smi_check(image: Image) -> Outcome:
    """npu-smi runs. Without it the framework decides, with a warning (T04); -8005 and -8020: the card is busy (D03)."""
    try:
        child = run(image, ["npu-smi", "info"])
    except OSError:
        count, why = device_count(image)
        if count:
            return warning(f"npu-smi is not mounted; torch_npu sees {count} NPUs")
        return failed(f"npu-smi is not mounted and torch_npu sees no NPU{': ' + why if why else ''}")
    said = child.out + child.err
    busy = re.search(r"-80(05|20)\b", said)
    if busy:
        return failed(
            f"card busy or not mounted (npu-smi: {busy[0]}); nodes: {', '.join(find_nodes(image).present)}",
            said.splitlines()[:5],
            unable=True,
        )
    if re.search(r"stand-?in", said, re.IGNORECASE):
        return failed("the npu-smi of a stand-in base answers, not the driver's: mount the host's npu-smi")
    if child.code != 0:
        return failed(f"npu-smi info: {ending(child.code, image.options.timeout)}", said.splitlines()[:5])
    return passed(f"npu-smi info: {next((line.strip(' |') for line in said.splitlines() if 'npu-smi' in line), 'ran')}")


def visible(image: Image) -> list[int] | str:
    """The logical cards that ASCEND_RT_VISIBLE_DEVICES leaves (all when it is not set), or what is wrong with it."""
    count = len(find_nodes(image).cards)
    text = image.env.get("ASCEND_RT_VISIBLE_DEVICES")
    if text is None:
        return list(range(count))
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        return f"ASCEND_RT_VISIBLE_DEVICES={text}: not a list of numbers"
    outside = [part for part in parts if int(part) >= count]
    if outside:
        why = "it counts this container's cards, not the host's"
        return f"ASCEND_RT_VISIBLE_DEVICES={text}: index outside 0..{count - 1} ({why})"
    return [int(part) for part in parts]


@check("npu.visible")
def visible_check(image: Image) -> Outcome:
    """ASCEND_RT_VISIBLE_DEVICES names cards of this container, which counts its own from 0 (case D06)."""
    found = visible(image)
    if isinstance(found, str):
        return failed(found)
    told = image.env.get("ASCEND_RT_VISIBLE_DEVICES")
    return passed(f"ASCEND_RT_VISIBLE_DEVICES {'is ' + told if told is not None else 'is not set'}: {len(found)} cards")


def device_count(image: Image) -> tuple[int, str]:
    """(NPUs that torch_npu counts, why it counts none), asked once in a child."""
    (answer,) = image.remember("device count", lambda: work(image, [{"do": "count"}]))
    return (answer.result["count"], "") if answer.ok else (0, failed_import(image, answer).message)


@check("npu.count")
def count_check(image: Image) -> Outcome:
    """torch_npu counts as many NPUs as there are visible nodes."""
    cards = visible(image)
    expected = len(cards) if isinstance(cards, list) else len(find_nodes(image).cards)
    count, why = device_count(image)
    if why:
        return failed(f"torch_npu cannot count: {why}")
    return judged(
        [] if count == expected else [f"torch_npu counts {count} NPUs, {expected} are visible"],
        f"torch_npu counts {count} NPUs",
    )


@check("npu.tensor")
def tensor_check(image: Image) -> Outcome:
    """A tensor goes to each NPU, is added to there, and comes back right."""
    count, why = device_count(image)
    if not count:
        return failed(f"no NPU to send a tensor to{': ' + why if why else ''}")
    answers = work(image, [{"do": "tensor", "index": index} for index in range(count)])
    faults = [
        f"npu:{index}: {failed_import(image, answer).message}" for index, answer in enumerate(answers) if not answer.ok
    ]
    return judged(faults, f"a tensor went to {', '.join(f'npu:{index}' for index in range(count))} and back")


NEEDS = {"npu.smi": ("npu.nodes", "npu.driver"), "npu.count": ("npu.nodes", "npu.driver", "npu.visible")}
NEEDS["npu.tensor"] = (*NEEDS["npu.count"], "npu.count")  # a check whose ground failed would only repeat that failure


def why_no_npu(image: Image) -> str:
    """Why the level npu cannot be looked at here at all; "" when it can."""
    if image.options.no_device:
        return "--no-device"
    nodes = find_nodes(image).present
    if image.manifest["base"]["kind"] == "standin":
        return "stand-in" if nodes else f"stand-in: {NO_NPU}"
    return "" if nodes else NO_NPU


# ---------------------------------------------------------------------------------------------------------------------
# Running and telling


def check_ids(manifest: Mapping[str, Any]) -> list[str]:
    """The ids of all checks of an image, in the order in which they run."""
    fixed = {level: [name for name in CHECKS if name.startswith(level + ".")] for level in LEVELS}
    imports = [*import_ids(manifest), *([PAIR] if has_pair(manifest) else [])]
    return [
        *fixed["static"],
        *imports,
        *(name for name in fixed["npu"] if has_pair(manifest) or name not in {"npu.count", "npu.tensor"}),
    ]


def guarded(function: Callable[[Image], Outcome], image: Image) -> Outcome:
    """A check that raises is that check's failure."""
    try:
        return function(image)
    except Exception as error:
        return broken(error)


def broken(error: Exception) -> Outcome:
    """A check that raised: what, in which function and line, in place of a traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" (in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno})" if trace is not None else ""
    return failed(f"the check itself broke: {type(error).__name__}: {' '.join(str(error).split())[:300]}{where}")


def run_checks(image: Image, wanted: Sequence[str]) -> Iterator[Outcome]:
    """Runs the checks named by id, and yields what each says, with the rule for skips applied."""
    imports: dict[str, Outcome] = {}
    states: dict[str, str] = {}
    no_npu = why_no_npu(image)
    for name in wanted:
        level = name.split(".")[0]
        if level == "import":
            if not imports:
                imports = guarded_imports(image, [item for item in wanted if item.startswith("import.")])
            outcome = imports[name]
        elif level == "npu" and no_npu:
            outcome = skipped(no_npu, five_points(image) if name == "npu.nodes" and no_npu == NO_NPU else ())
        else:
            ground = [other for other in NEEDS.get(name, ()) if states.get(other) == "failed"]
            outcome = skipped(f"{ground[0]} failed") if ground else guarded(CHECKS[name], image)
        states[name] = outcome.status
        yield replace(allowed_skip(image, name, outcome), id=name, level=level)


def guarded_imports(image: Image, names: Sequence[str]) -> dict[str, Outcome]:
    """All import checks; should their machinery break, that is the failure of each."""
    try:
        return import_outcomes(image, names)
    except Exception as error:
        return dict.fromkeys(names, broken(error))


def allowed_skip(image: Image, name: str, outcome: Outcome) -> Outcome:
    """A skip is a failure unless the manifest allows it, the user asked for it, or it follows from a failure told."""
    asked = outcome.message == "--no-device" or (image.options.require_npu and name.startswith("npu."))
    if (
        outcome.status != "skipped"
        or asked
        or outcome.message.endswith(" failed")
        or name in image.manifest["may_skip"]
    ):
        return outcome
    return failed(f"skipped ({outcome.message}), and the manifest's may_skip does not allow that", outcome.details)


def result_of(outcomes: Sequence[Outcome], options: Options) -> str:
    """passed, failed or unable, over all checks."""
    if any(item.status == "failed" and not item.unable for item in outcomes):
        return "failed"
    lacking = options.require_npu and any(item.level == "npu" and item.status == "skipped" for item in outcomes)
    return "unable" if lacking or any(item.unable for item in outcomes) else "passed"


def counts_of(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many checks ended in each status."""
    found = Counter(item.status for item in outcomes)
    return {status: found[status] for status in SIGNS}


def lines_of(item: Outcome) -> Iterator[str]:
    """A check as text."""
    yield f"{SIGNS[item.status]} {item.id}: {'skipped: ' if item.status == 'skipped' else ''}{item.message}"
    if item.status != "passed":
        yield from (f"     {line}" for line in item.details[:DETAILS_SHOWN])
        if len(item.details) > DETAILS_SHOWN:
            yield f"     … {len(item.details) - DETAILS_SHOWN} more (--json has all)"


def summary(outcomes: Sequence[Outcome], result: str) -> str:
    """The last line. It never speaks well of an NPU that was not looked at."""
    counts = counts_of(outcomes)
    parts = [
        f"{count} {status}{'s' if status == 'warning' and count != 1 else ''}"
        for status, count in counts.items()
        if count
    ]
    npu = [item for item in outcomes if item.level == "npu"]
    reasons = list(dict.fromkeys(item.message for item in npu if item.status == "skipped"))
    unproved = f"; the NPU was not tested ({', '.join(reasons)})" if reasons else ""
    if not npu:
        unproved = "; the NPU was not tested (level not run)"
    sign = {
        "passed": "✅ passed",
        "failed": "❌ failed",
        "unable": "❌ unable: this machine cannot run what was asked",
    }[result]
    return f"{sign}: {', '.join(parts) or 'no check ran'}{unproved}"


def document(manifest: Mapping[str, Any], outcomes: Sequence[Outcome], result: str) -> dict[str, Any]:
    """The report as one JSON value (docs/verify-report.schema.json)."""
    return {
        "schema": 1,
        "result": result,
        "profile": manifest.get("profile"),
        "plan": manifest.get("plan"),
        "base": manifest["base"]["kind"] if manifest else None,
        "checks": [
            {
                "id": item.id,
                "level": item.level,
                "status": item.status,
                "message": item.message,
                "details": list(item.details),
            }
            for item in outcomes
        ],
        "counts": counts_of(outcomes),
    }


EXIT = {"passed": 0, "failed": 1, "unable": 3}


def report(image: Image, wanted: Sequence[str], *, as_json: bool) -> int:
    """Runs and prints; the exit code."""
    outcomes: list[Outcome] = []
    for item in run_checks(image, wanted):
        if not as_json:
            if not outcomes or outcomes[-1].level != item.level:
                print(f"{'' if not outcomes else chr(10)}── {item.level}")
            print("\n".join(lines_of(item)), flush=True)
        outcomes.append(item)
    result = result_of(outcomes, image.options)
    if as_json:
        print(json.dumps(document(image.manifest, outcomes, result), ensure_ascii=False, indent=1))
    else:
        print("\n" + summary(outcomes, result))
    return EXIT[result]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Wrong use ends with code 2."""
    parser = argparse.ArgumentParser(
        description="Proves that this image is what its manifest says.",
        epilog="Example: python /opt/cannery/verify.py --level static --level import   "
        "Exit codes: 0 all passed, 1 a failure, 2 wrong use, 3 the machine cannot run what was asked.",
    )
    parser.add_argument(
        "--level", action="append", choices=LEVELS, help="only this level; may be given again (default: all)"
    )
    parser.add_argument("--only", action="append", metavar="ID", help="only this check; may be given again")
    parser.add_argument("--list", action="store_true", help="print the ids of the checks and end")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--require-npu", action="store_true", help="checks of the level npu that cannot run here are exit code 3"
    )
    parser.add_argument("--no-device", action="store_true", help="skip the checks that need an NPU")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="longest silence of a child process (300)"
    )
    parser.add_argument("--manifest", metavar="PATH", help=f"the manifest ({MANIFEST})")
    parser.add_argument("--root", default="/", metavar="DIR", help="look at a tree other than / (for tests)")
    options = parser.parse_args(arguments)
    if options.require_npu and options.no_device:
        parser.error("--require-npu and --no-device exclude each other")
    if options.timeout <= 0:
        parser.error("--timeout must be above 0")
    return options


def chosen(manifest: Mapping[str, Any], options: argparse.Namespace) -> list[str]:
    """The ids that the command line asks for. LookupError names an unknown one and the nearest."""
    known = check_ids(manifest)
    for name in options.only or ():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise LookupError(f"no check {name}" + (f"; nearest: {near[0]}" if near else "; --list prints them"))
    return [
        name
        for name in known
        if (not options.only or name in options.only) and (not options.level or name.split(".")[0] in options.level)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    options = parse_arguments(arguments)
    root = os.path.realpath(options.root)
    path = options.manifest or (MANIFEST if root == "/" else root + MANIFEST)
    try:
        manifest = load_manifest(path)
    except ManifestError as error:
        outcome = replace(failed(str(error)), id="static.manifest", level="static")
        print(
            json.dumps(document({}, [outcome], "failed"), ensure_ascii=False, indent=1)
            if options.json
            else "\n".join(lines_of(outcome))
        )
        return EXIT["failed"]
    try:
        wanted = chosen(manifest, options)
    except LookupError as error:
        print(f"verify.py: {error.args[0]}", file=sys.stderr)
        return 2
    if not wanted:
        print("verify.py: --level and --only leave no check", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(wanted))
        return 0
    image = Image(
        manifest,
        root,
        dict(os.environ),
        working_folder(),
        Options(options.timeout, options.no_device, options.require_npu),
        path,
    )
    return report(image, wanted, as_json=options.json)


def working_folder() -> str:
    """The working folder; / when it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = main()
    except KeyboardInterrupt:
        print("verify.py: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)
