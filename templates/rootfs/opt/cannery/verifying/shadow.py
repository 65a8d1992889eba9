"""The check of shadows: modules come from where they were installed, and from nowhere else."""

import glob
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from verifying.child import work
from verifying.image import Image, below, read_text, within
from verifying.imports import import_ids
from verifying.libraries import entries
from verifying.manifest import normal_name, source_paths
from verifying.outcome import Outcome, failed, judged
from verifying.packages import all_records, distributions, records

# Names that wheels put at the top by mistake (verl's has tests and scripts) and that any working folder may hold.
COMMON_NAMES = re.compile(
    r"tests?|testing|docs?|examples?|scripts?|benchmarks?|tools?|bin|data|src|build|dist|lib|configs?|requirements"
)
VERSION_FILES = ("__init__.py", "version.py", "_version.py", "package_info.py")
STATED = re.compile(r"^__version__\s*(?::\s*\w+\s*)?=\s*[\"']([^\"']+)[\"']", re.MULTILINE)
NUMBERS = ("MAJOR", "MINOR", "PATCH")  # Megatron-LM's package_info.py has its version in three lines


def module_names(image: Image) -> set[str]:
    """Top-level modules of the manifest's distributions (by RECORD) and trees, and of the imports it checks."""
    names = {item["module"].split(".")[0] for item in image.manifest["checks"]["imports"]}
    start = len(image.site) + 1
    for row in (row for rows in records(image).values() for row in rows or ()):
        first, more, _ = row.path[start:].partition("/")
        if row.path.startswith(image.site) and (more or first.endswith((".py", ".so"))):
            names.add(first if more else first.split(".")[0])
    names |= {name for found in source_modules(image).values() for name in found}
    return {
        name for name in names if name.isidentifier() and not name.startswith("__") and not COMMON_NAMES.fullmatch(name)
    }


def source_modules(image: Image) -> dict[str, set[str]]:
    """Top-level modules of the sources that are trees, by the tree's path in the image."""

    def look() -> dict[str, set[str]]:
        found = {path: set(packages_on_path(image, path)) for path in source_paths(image.manifest)}
        folders = {item.key: item.folder for item in distributions(image)}
        imports = [row for rows in import_ids(image.manifest).values() for row in rows]
        for item in image.manifest["sources"]:
            if item["path"]:
                folder = folders.get(normal_name(item["name"]), "") if item["install"] == "editable" else ""
                text = read_text(os.path.join(image.site, folder, "top_level.txt")) if folder else ""
                checked = [row["module"] for row in imports if row["component"] == item["component"]]
                found[item["path"]] |= {*text.split(), *(module.split(".")[0] for module in checked)}
        return found

    return image.remember("source modules", look)


def packages_on_path(image: Image, path: str) -> Iterator[str]:
    """The packages that a tree has in those of its folders that PYTHONPATH names.

    Folders without __init__.py count when a package is in them (Megatron-LM's `megatron`); single files do not: every
    training tree has its own pretrain_gpt.py.
    """
    for entry in entries(image.env, "PYTHONPATH"):
        folder = entry if os.path.exists(entry) else image.path(entry)
        if within(folder, image.path(path)):
            for pattern in ("*/__init__.py", "*/*/__init__.py"):
                yield from (found.partition("/")[0] for found in glob.glob(pattern, root_dir=folder))


def version_at(image: Image, path: str) -> str:
    """Of what, and in which version, a module at a path is: by RECORD, the manifest's sources, or what it states."""
    for item in image.manifest["sources"]:
        if item["path"] and within(path, image.path(item["path"])):
            return f"{item['component']} {item['version'] or stated_version(path) or 'of unknown version'}"
    owners = {
        key
        for key, rows in all_records(image).items()
        if any(f"{row.path}/".startswith(f"{path}/") for row in rows or ())
    }
    versions = [f"{item.key} {item.version}" for item in distributions(image) if item.key in owners]
    return ", ".join(versions[:2]) or stated_version(path) or "version unknown"


def stated_version(path: str) -> str:
    """The version that a package states in a file of its own; "" when it states none."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) if path.endswith("/__init__.py") else ""
    for file in VERSION_FILES if folder else ():
        text = read_text(os.path.join(folder, file))
        found = STATED.search(text)
        numbers = [re.search(rf"^{name}\s*=\s*(\d+)", text, re.MULTILINE) for name in NUMBERS]
        if found:
            return found[1]
        if all(numbers):
            return ".".join(number[1] for number in numbers if number)
    return ""


def shadow_check(image: Image) -> Outcome:
    """Modules of the manifest's distributions and trees come from their one place, from / and the working folder."""
    names = module_names(image)
    faults: dict[str, None] = {}
    places = list(dict.fromkeys(map(os.path.realpath, (image.path("/"), image.cwd))))
    for folder in places:
        (answer,) = work(image, [{"do": "shadow", "names": sorted(names)}], folder)
        if not answer.ok:
            return failed(f"from {folder}: {answer.causes[0]}", answer.noise.splitlines()[-3:])
        for name, found in answer.result.items():
            fault = shadow_fault(image, name, found)
            faults.update({fault: None} if fault else {})
    seen = " and ".join(map(image.shown, places))
    return judged(list(faults), f"{len(names)} modules, each from one place, seen from {seen}")


def shadow_fault(image: Image, name: str, found: Mapping[str, Any]) -> str:
    """Why a module is not the one that was installed: another copy, another place, a bare folder where one works.

    Two ways to one place, by a link, are one copy.
    """
    homes = [image.site, *map(image.path, source_paths(image.manifest))]
    origin, hits = found["origin"], [(path, is_bare) for path, is_bare, here in found["hits"] if not is_bare or here]
    copies: dict[str, str] = {}  # by the folder that really holds it
    for path in (path for path, is_bare in hits if not is_bare):
        copies.setdefault(real_folder(path), path)
    at_home = [path for path in [*(hit[0] for hit in found["hits"]), origin] if path and below(path, homes)]
    strange = [path for path, _ in hits if not below(path, homes)]
    if len(copies) > 1 or (at_home and strange):
        home = at_home[0] if at_home else next(iter(copies.values()))
        others = (path for path in (*strange, *copies.values()) if real_folder(path) != real_folder(home))
        other = next(others, home)
        takes = f"; import takes {image.shown(origin)}" if origin else ""
        return f"{name}: {described(image, other)} is beside {described(image, home)}{takes}"
    if not origin or (os.path.isdir(origin) and not copies):
        return ""  # a namespace: what its portions share has its own entry
    if not below(origin, homes) and not (at_home or strange):
        return ""  # of the base or of Python itself
    # Where it belongs: in the trees that bring it, else anywhere of the manifest. A distribution that was made from a
    # tree and is no editable install is in site-packages like any other.
    trees = [image.path(path) for path, names in source_modules(image).items() if name.partition(".")[0] in names]
    wanted = trees or homes
    if not below(origin, wanted):
        return f"{name} comes from {described(image, origin)}, not from {' or '.join(map(image.shown, wanted))}"
    return ""


def real_folder(path: str) -> str:
    """The folder that holds a file or folder, links followed."""
    return os.path.dirname(os.path.realpath(path))


def described(image: Image, path: str) -> str:
    """A place with the version of what is there."""
    return f"{image.shown(path)} ({version_at(image, path)})"
