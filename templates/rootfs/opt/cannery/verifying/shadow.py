"""The check of shadows: modules come from where they were installed, and from nowhere else."""

import json
import os
from collections.abc import Mapping
from typing import Any

from verifying.child import program, run
from verifying.image import Image, below
from verifying.manifest import source_paths
from verifying.modules import homes_of, module_names, version_at
from verifying.outcome import Outcome, failed, judged


def shadow_check(image: Image) -> Outcome:
    """Modules of the manifest's distributions and trees come from their one place, from / and the working folder."""
    names = module_names(image)
    faults: dict[str, None] = {}
    places = list(dict.fromkeys([image.path("/"), os.path.realpath(image.cwd)]))
    for folder in places:
        child = run(image, [image.python, "-c", program("in_shadow")], cwd=folder, text=json.dumps(sorted(names)))
        if child.code != 0:
            return failed(f"from {folder}: {child.ending}", child.last_words)
        for name, found in json.loads(child.out.splitlines()[-1]).items():
            fault = shadow_fault(image, name, found)
            faults.update({fault: None} if fault else {})
    seen = " and ".join(map(image.shown, places))
    return judged(list(faults), f"{len(names)} modules, each from one place, seen from {seen}")


def shadow_fault(image: Image, name: str, found: Mapping[str, Any]) -> str:
    """Why a module is not the one that was installed: another copy, another place, a bare folder where one works.

    Two ways to one place, by a link, are one copy.
    """
    homes = [image.site, *map(image.path, source_paths(image.manifest))]
    origin, hits = found["origin"], [(path, kind) for path, kind, here in found["hits"] if kind != "bare" or here]
    copies: dict[str, str] = {}  # by the folder that really holds it: name.py and name.so in one are one
    for path, _ in filter(lambda hit: hit[1] != "bare", hits):
        copies.setdefault(real_folder(path), path)
    at_home = [path for path in [*(hit[0] for hit in found["hits"]), origin] if path and below(path, homes)]
    strange = [path for path, _ in hits if not below(path, homes)]
    if len(copies) > 1 or (at_home and strange):
        home = at_home[0] if at_home else next(iter(copies.values()))
        others = (path for path in (*strange, *copies.values()) if real_folder(path) != real_folder(home))
        other = next(others, home)
        takes = f"; import takes {image.shown(origin)}" if origin else ""
        return f"{name}: {said(image, other)} stands beside {said(image, home)}{takes}"
    if not origin or (os.path.isdir(origin) and not copies):
        return ""  # a namespace: what its portions share has its own entry
    if not below(origin, homes) and not (at_home or strange):
        return ""  # of the base or of Python itself
    wanted = homes_of(image, name)
    if not below(origin, wanted):
        return f"{name} comes from {said(image, origin)}, not from {' or '.join(map(image.shown, wanted))}"
    return ""


def real_folder(path: str) -> str:
    """The folder that holds a file or folder, links followed."""
    return os.path.dirname(os.path.realpath(path))


def said(image: Image, path: str) -> str:
    """A place with the version that stands there."""
    return f"{image.shown(path)} ({version_at(image, path)})"
