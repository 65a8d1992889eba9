"""The program of static.shadow's child, for `python -c`; nothing imports it.

Reads names of modules as JSON, prints where import finds each, and every place that holds one of that name: on
sys.path, and by the finders of editable installs. Of a package without __init__.py that is in several places, the
modules that more than one of them holds follow under their dotted names: import takes those from the first alone.
"""

import importlib.util
import json
import os
import sys
import sysconfig
from collections import defaultdict
from contextlib import suppress

Hit = tuple[str, str, bool]  # path, kind, whether it is in the working folder
DEEPEST = 4  # of a namespace in a namespace


def place_of(spec: object) -> str:
    """The file that a module comes from, or the first folder of a package without one; "" when there is none."""
    origin = getattr(spec, "origin", None)
    if origin and getattr(spec, "has_location", False):
        return str(origin)
    return next(iter(getattr(spec, "submodule_search_locations", None) or ()), "")


def origin_of(name: str) -> str:
    """Where import finds a module; "" when it does not."""
    try:
        return place_of(importlib.util.find_spec(name))
    except BaseException:
        return ""


def by_finders(name: str) -> list[Hit]:
    """Where finders other than Python's own have a module: those of editable installs come after sys.path."""
    found: list[Hit] = []
    for finder in sys.meta_path:
        if "_frozen_importlib" in getattr(finder, "__module__", ""):
            continue
        with suppress(BaseException):
            place = place_of(finder.find_spec(name, None))
            path = os.path.dirname(place) if os.path.basename(place).startswith("__init__.") else place
            found += [(path, "bare" if path == place and os.path.isdir(path) else "package", False)] if path else []
    return found


def kind_of(folder: str, item: str) -> str:
    """What a name of a folder is to import: package, bare (a folder without __init__.py), module; "" when nothing."""
    path = os.path.join(folder, item)
    if "." not in item and os.path.isdir(path):
        return "package" if os.path.exists(os.path.join(path, "__init__.py")) else "bare"
    return "module" if item.endswith((".py", ".so", ".pyc")) else ""


def shared(name: str, folders: list[str], depth: int) -> dict[str, list[Hit]]:
    """What several portions of a namespace hold, by dotted name."""
    inside: dict[str, list[Hit]] = defaultdict(list)
    for folder in folders:
        for item in os.listdir(folder):
            stem, kind = item.split(".")[0], kind_of(folder, item)
            if kind and stem.isidentifier():
                inside[f"{name}.{stem}"].append((os.path.join(folder, item), kind, False))
    found: dict[str, list[Hit]] = {}
    for inner, places in inside.items():
        if len({os.path.dirname(path) for path, _, _ in places}) > 1:
            found.update(deeper(inner, places, depth) or {inner: places})
    return found


def deeper(name: str, places: list[Hit], depth: int = 0) -> dict[str, list[Hit]]:
    """The same of a name, if all that holds it are folders without __init__.py, and more than one."""
    bare = {os.path.realpath(path): path for path, kind, _ in places if kind == "bare"}
    if depth >= DEEPEST or len(bare) < 2 or any(kind != "bare" for _, kind, _ in places):
        return {}
    return shared(name, list(bare.values()), depth + 1)


hits: dict[str, list[Hit]] = {name: by_finders(name) for name in json.loads(sys.stdin.read())}
origins = {name: origin_of(name) for name in hits}
done = {os.path.realpath(path) for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))}
base = os.path.realpath(sys.base_prefix)  # static.python checks whether its packages are visible
bases = tuple(base + end for end in ("/lib/", "/lib64/", "/local/lib/")) if sys.base_prefix != sys.prefix else ()
for entry in sys.path:
    folder = os.path.realpath(entry or os.getcwd())
    if folder in done or folder.startswith(bases) or not os.access(folder, os.R_OK) or not os.path.isdir(folder):
        continue
    done.add(folder)
    for item in os.listdir(folder):
        name = item.split(".")[0]
        kind = kind_of(folder, item) if name in hits else ""
        if kind:
            hits[name].append((os.path.join(folder, item), kind, entry in {"", os.getcwd()}))
answer = {name: {"origin": origins[name], "hits": places} for name, places in hits.items()}
inner = {dotted: found for name, places in hits.items() for dotted, found in deeper(name, places).items()}
for dotted, places in inner.items():  # portions are searched in the order of sys.path
    answer[dotted] = {"origin": next((path for path, kind, _ in places if kind != "bare"), ""), "hits": places}
print("\n" + json.dumps(answer))
