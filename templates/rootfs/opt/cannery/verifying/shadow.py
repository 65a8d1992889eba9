"""The check of shadows: modules come from where they were installed, and from nowhere else."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from verifying.child import program, run
from verifying.distributions import records
from verifying.image import Image, below
from verifying.outcome import Outcome, failed, judged

# Names that wheels put at the top by mistake (verl's has tests and scripts) and that any working folder may hold.
COMMON_NAMES = re.compile(
    r"tests?|testing|docs?|examples?|scripts?|benchmarks?|tools?|bin|data|src|build|dist|lib|configs?|requirements"
)


def shadow_check(image: Image) -> Outcome:
    """Modules of the manifest's distributions come from their one place, seen from / and from the working folder."""
    names = module_names(image)
    homes = [image.site, *(image.path(item["path"]) for item in image.manifest["sources"])]
    faults: dict[str, None] = {}
    places = list(dict.fromkeys([image.path("/"), os.path.realpath(image.cwd)]))
    for folder in places:
        child = run(image, [image.python, "-c", program("in_shadow")], cwd=folder, text=json.dumps(sorted(names)))
        if child.code != 0:
            return failed(f"from {folder}: {child.ending}", child.last_words)
        for name, found in json.loads(child.out.splitlines()[-1]).items():
            faults.update(dict.fromkeys(shadow_faults(image, name, found, homes)))
    seen = " and ".join(map(image.shown, places))
    return judged(list(faults), f"{len(names)} modules, each from one place, seen from {seen}")


def module_names(image: Image) -> set[str]:
    """Top-level modules of the manifest's distributions (by RECORD) and of the imports it checks."""
    names = {item["module"].split(".")[0] for item in image.manifest["checks"]["imports"]}
    start = len(image.site) + 1
    for row in (row for rows in records(image).values() for row in rows or ()):
        first, more, _ = row.path[start:].partition("/")
        if row.path.startswith(image.site) and (more or first.endswith((".py", ".so"))):
            names.add(first if more else first.split(".")[0])
    return {
        name for name in names if name.isidentifier() and not name.startswith("__") and not COMMON_NAMES.fullmatch(name)
    }


def shadow_faults(image: Image, name: str, found: Mapping[str, Any], homes: Sequence[str]) -> list[str]:
    """Why a module is not the one that was installed: another copy, another place, a bare folder where one works."""
    hits = [(path, kind) for path, kind, here in found["hits"] if kind != "bare" or here]
    real = [path for path, kind in hits if kind != "bare"]
    at_home = [path for path in [*(hit[0] for hit in found["hits"]), found["origin"]] if path and below(path, homes)]
    home, origin = (at_home[0] if at_home else ""), found["origin"]
    strange = [path for path, _ in hits if not below(path, homes)]
    if home and (strange or len({os.path.dirname(path) for path in real}) > 1):
        other = strange or [path for path in real if os.path.dirname(path) != os.path.dirname(home)]
        says = f"{image.shown(other[0])} stands beside {image.shown(home)}; import takes {image.shown(origin)}"
        return [f"{name}: {says}"]
    if origin and not below(origin, homes):
        wanted = " or ".join(image.shown(path) for path in homes)
        return [f"{name} comes from {image.shown(origin)}, not from {wanted}"] if at_home or strange else []
    return []
