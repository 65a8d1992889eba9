"""The program of static.shadow's child, for `python -c`; nothing imports it.

Reads names of modules as JSON, prints where import finds each, and every place that holds one of that name, each as
(path, is it a folder without __init__.py, is it in the working folder): on sys.path, and by the finders of editable
installs. Of a package without __init__.py that is in several places, the modules that more than one of them holds
follow under their dotted names: import takes those from the first alone.
"""

import importlib.util
import json
import os
import pkgutil
import sys
import sysconfig
from contextlib import suppress
from typing import Any

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


own = [finder for finder in sys.meta_path if "_frozen_importlib" not in getattr(finder, "__module__", "")]
hits = {name: [one for finder in own for one in hit(finder, name, None)] for name in json.loads(sys.stdin.read())}
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
answer = {name: {"origin": origins[name], "hits": places} for name, places in hits.items()}
inner = {dotted: found for name, places in hits.items() for dotted, found in shared(name, places).items()}
for dotted, places in inner.items():  # portions are searched in the order of sys.path
    answer[dotted] = {"origin": next((path for path, is_bare, _ in places if not is_bare), ""), "hits": places}
print("\n" + json.dumps(answer))
