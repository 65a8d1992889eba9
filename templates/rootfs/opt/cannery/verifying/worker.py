"""The program of a worker's child, for `python -c REPORTS TASKS NOISE`, three file descriptors; nothing imports it.

Runs tasks one after another and reports each on a pipe of its own, so that a module's output, which goes to NOISE,
cannot be taken for a report. It ends by _exit: threads that an import left behind must not hang it.
"""

import ctypes
import gc
import importlib.util
import json
import os
import pkgutil
import sys
import sysconfig
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any


def say(*, ok: bool, last: bool, result: object = None, causes: tuple[str, ...] = ()) -> None:
    """Writes one report, with the place that the task's own output has reached."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    words = {"ok": ok, "last": last, "result": result or {}, "causes": causes, "at": os.fstat(noise).st_size}
    report.write(json.dumps(words) + "\n")


def text(value: object) -> str:
    """A value as text."""
    return value if isinstance(value, str) else str(value)


def done(task: dict[str, Any]) -> dict[str, Any]:
    """Does one task; what it found."""
    if task["do"] == "python":
        version = ".".join(map(str, sys.version_info[:3]))
        return {"version": version, "prefix": sys.prefix, "base_prefix": sys.base_prefix}
    if task["do"] == "shadow":
        return shadows(task["names"])
    if task["do"] == "library":
        ctypes.CDLL(task["path"])
        return {}
    if task["do"] == "import":
        return imported(importlib.import_module(task["module"]), task["attributes"])
    if task["do"] == "plugin":
        return plugged(importlib.import_module(task["module"]), task)
    if task["do"] == "stage":
        sys.path.insert(0, task["path"])
        return dict(getattr(importlib.import_module(task["module"]), task["stage"])(task["folder"], task["facts"]))
    torch, torch_npu = importlib.import_module("torch"), importlib.import_module("torch_npu")
    if task["do"] == "count":
        return {"count": int(torch.npu.device_count())}
    if task["do"] == "tensor":
        back = (torch.arange(16, dtype=torch.float32).to(f"npu:{task['index']}") + 1).cpu().tolist()
        if back != [float(number) for number in range(1, 17)]:
            raise ValueError(f"sent 0..15, added 1, got {back!r}")
        return {}
    return {
        "torch": text(torch.__version__),
        "torch_npu": text(torch_npu.__version__),
        "extension": getattr(sys.modules.get("torch_npu._C"), "__file__", None) or "",
        "abi": int(bool(torch._C._GLIBCXX_USE_CXX11_ABI)),  # noqa: SLF001 - has no public name
        "available": bool(torch.npu.is_available()),
    }


def imported(module: object, attributes: list[str]) -> dict[str, Any]:
    """Where a module came from, its version, and the attributes asked for."""
    version, values = "", {}
    with suppress(Exception):
        version = text(getattr(module, "__version__", ""))
    for attribute in attributes:
        value = module
        for part in attribute.split("."):
            value = getattr(value, part)
        values[attribute] = text(value)
    return {**place_of(module), "version": version, "values": values}


def place_of(module: object) -> dict[str, Any]:
    """Where a module came from: its file, or the folders of one without."""
    return {"file": getattr(module, "__file__", None) or "", "places": list(getattr(module, "__path__", ()))}


def plugged(module: object, task: dict[str, Any]) -> dict[str, Any]:
    """Where a plugin's module came from, whether Python finds its entry point, and what calling it gave."""
    found = entry_points(group=task["group"])
    seen = any((point.name, point.value) == (task["name"], task["value"]) for point in found)
    answer = {**place_of(module), "seen": seen, "lacks": "", "gives": ""}
    value = module
    for part in filter(None, task["attribute"].split(".")):
        if not hasattr(value, part):
            return answer | {"lacks": task["attribute"]}
        value = getattr(value, part)
    return answer | {"gives": text(value()) if task["call"] and callable(value) else ""}


# A place that holds a module: path, is it a folder without __init__.py, is it in the working folder.
Hit = tuple[str, bool, bool]
DEEPEST = 4  # of a namespace in a namespace


def origin_of(name: str) -> str:
    """The file that import takes a module from, or the first folder of a package without one; "" when there is none."""
    with suppress(BaseException):
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and spec.has_location:
            return spec.origin
        return next(iter(spec.submodule_search_locations or ()), "") if spec else ""
    return ""


def hit(finder: Any, name: str, *path: None, here: bool = False) -> list[Hit]:
    """What one finder has of a name: a package's folder or a module's file; [] when it has none."""
    with suppress(BaseException):
        spec = finder.find_spec(name, *path)
        place = next(iter(spec.submodule_search_locations or ()), spec.origin)
        return [(place, not spec.has_location, here)] if place else []
    return []


def shared(name: str, places: list[Hit], depth: int = 0) -> dict[str, list[Hit]]:
    """What several portions of a namespace hold, by dotted name; {} for what is no namespace of several."""
    folders = {os.path.realpath(path): path for path, is_bare, _ in places if is_bare}
    if depth > DEEPEST or len(folders) < 2 or not all(is_bare for _, is_bare, _ in places):
        return {}
    stems = {item.split(".")[0] for folder in folders for item in os.listdir(folder)}
    found: dict[str, list[Hit]] = {}
    for inner in sorted(f"{name}.{stem}" for stem in stems if stem.isidentifier()):
        held = [one for folder in folders.values() for one in hit(pkgutil.get_importer(folder), inner)]
        if len(held) > 1:
            found.update(shared(inner, held, depth + 1) or {inner: held})
    return found


def shadows(names: list[str]) -> dict[str, dict[str, Any]]:
    """Where import finds each name, and every place that holds one: on sys.path, by the finders of editable installs.

    Of a package without __init__.py that is in several places, the modules that more than one of them holds follow
    under their dotted names: import takes those from the first alone.
    """
    own = [finder for finder in sys.meta_path if "_frozen_importlib" not in getattr(finder, "__module__", "")]
    hits = {name: [one for finder in own for one in hit(finder, name, None)] for name in names}
    origins = {name: origin_of(name) for name in hits}
    done = {os.path.realpath(path) for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))}
    base = os.path.realpath(sys.base_prefix)  # static.python checks whether its packages are visible
    bases = tuple(base + end for end in ("/lib/", "/lib64/", "/local/lib/")) if sys.base_prefix != sys.prefix else ()
    for entry in (item or os.getcwd() for item in sys.path):
        folder = os.path.realpath(entry)
        if folder not in done and not folder.startswith(bases):
            done.add(folder)
            finder = pkgutil.get_importer(folder)
            for name in hits:
                hits[name] += hit(finder, name, here=entry == os.getcwd())
    found: dict[str, dict[str, Any]] = {name: {"origin": origins[name], "hits": hits[name]} for name in hits}
    inner = {dotted: held for name, places in hits.items() for dotted, held in shared(name, places).items()}
    for dotted, places in inner.items():  # portions are searched in the order of sys.path
        found[dotted] = {"origin": next((path for path, is_bare, _ in places if not is_bare), ""), "hits": places}
    return found


def chain(error: BaseException | None) -> tuple[str, ...]:
    """The causes of an exception, the first one first."""
    found: list[str] = []
    while error is not None and len(found) < 20:
        words = " ".join(text(error).split())[:1000]
        found.append(f"{type(error).__name__}: {words}" if text(error) else type(error).__name__)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return tuple(found[::-1])


gc.disable()  # the collector takes a fifth of the time of large imports, and finds next to nothing there
report, noise = os.fdopen(int(sys.argv[1]), "w", buffering=1), int(sys.argv[3])
with os.fdopen(int(sys.argv[2]), "rb") as given:
    tasks = json.load(given)
for number, task in enumerate(tasks):
    is_last = number == len(tasks) - 1
    try:
        say(ok=True, last=is_last, result=done(task))
    except BaseException as error:
        # Half-imported modules stay behind, and what follows would fail for their sake.
        is_last = is_last or task["do"] in {"import", "pair", "plugin"}
        try:
            why = chain(error)
        except BaseException:
            why = (type(error).__name__,)
        say(ok=False, last=is_last, causes=why)
    if is_last:
        break
report.flush()
os._exit(0)
