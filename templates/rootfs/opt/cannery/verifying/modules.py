"""Names of modules: which the manifest's distributions and trees bring, where each belongs, which version is where."""

import os
import re
from collections.abc import Iterator

from verifying.distributions import all_records, distributions, records
from verifying.image import Image, read_text, within
from verifying.loader import entries
from verifying.manifest import source_paths
from verifying.versions import normal_name

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
    """Top-level modules of the sources that stand as trees, by the tree's path in the image."""

    def look() -> dict[str, set[str]]:
        found = {path: set(packages_on_path(image, path)) for path in source_paths(image.manifest)}
        folders = {item.key: item.folder for item in distributions(image)}
        imports = image.manifest["checks"]["imports"]
        for item in image.manifest["sources"]:
            if item["path"]:
                folder = folders.get(normal_name(item["name"]), "") if item["install"] == "editable" else ""
                text = read_text(os.path.join(image.site, folder, "top_level.txt")) if folder else ""
                checked = [row["module"] for row in imports if row["component"] == item["component"]]
                checked += patched_modules(image, item["component"])
                found[item["path"]] |= {*text.split(), *(module.split(".")[0] for module in checked)}
        return found

    return image.remember("source modules", look)


def patched_modules(image: Image, component: str) -> list[str]:
    """The modules of a component that patches change: those by which its code is known, whatever is installed."""
    files = (file for patch in image.manifest["patches"] if patch["component"] == component for file in patch["files"])
    return [file["module"] for file in files if file.get("module")]


def packages_on_path(image: Image, path: str) -> Iterator[str]:
    """The packages that a tree has in those of its folders that PYTHONPATH names.

    Folders without __init__.py count when a package is in them (Megatron-LM's `megatron`); single files do not: every
    training tree has its own pretrain_gpt.py.
    """
    for entry in entries(image.env, "PYTHONPATH"):
        folder = entry if os.path.exists(entry) else image.path(entry)
        if within(folder, image.path(path)) and os.path.isdir(folder):
            for name in os.listdir(folder):
                if is_package(os.path.join(folder, name)):
                    yield name


def is_package(path: str) -> bool:
    """Whether a folder is a package, or holds one."""
    if not os.path.isdir(path):
        return False
    inside = (os.path.join(path, name) for name in os.listdir(path))
    return any(os.path.basename(item) == "__init__.py" or os.path.exists(f"{item}/__init__.py") for item in inside)


def homes_of(image: Image, name: str) -> list[str]:
    """The folders, on this machine, in which a module belongs: the trees that bring it, else anywhere of the manifest.

    A distribution that was made from a tree and is no editable install stands in site-packages like any other.
    """
    top = name.partition(".")[0]
    trees = [image.path(path) for path, names in source_modules(image).items() if top in names]
    return trees or [image.site, *map(image.path, source_paths(image.manifest))]


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
