"""The program of static.shadow's child, for `python -c`; nothing imports it.

Reads names of modules as JSON, prints where import finds each, and every place on sys.path that holds one of that name.
"""

import importlib.util
import json
import os
import sys
import sysconfig


def origin(name: str) -> str:
    """The file that import takes, or the first folder of a package without one; "" when it finds nothing."""
    try:
        spec = importlib.util.find_spec(name)
    except BaseException:
        return ""
    if spec is None:
        return ""
    places = list(spec.submodule_search_locations or [])
    return spec.origin if spec.has_location and spec.origin else (places[0] if places else "")


def kind_of(folder: str, item: str) -> str:
    """What a name of a folder is to import: package, bare (a folder without __init__.py), module; "" when nothing."""
    path = os.path.join(folder, item)
    if "." not in item and os.path.isdir(path):
        return "package" if os.path.exists(os.path.join(path, "__init__.py")) else "bare"
    return "module" if item.endswith((".py", ".so", ".pyc")) else ""


hits: dict[str, list[tuple[str, str, bool]]] = {name: [] for name in json.loads(sys.stdin.read())}
answer = {name: {"origin": origin(name), "hits": places} for name, places in hits.items()}
done = {os.path.realpath(path) for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))}
base = os.path.realpath(sys.base_prefix)  # whether its packages are let in is static.python's to say
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
print("\n" + json.dumps(answer))
