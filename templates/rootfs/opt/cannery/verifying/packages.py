"""Checks of which distributions are installed: the manifest's, no other, none that clash."""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifying.child import run
from verifying.distributions import Distribution, added, distributions
from verifying.image import VENV, Image
from verifying.manifest import distributed
from verifying.outcome import Outcome, failed, judged
from verifying.sources import install_fault
from verifying.versions import normal_name, same_release, same_version


def wheels_check(image: Image) -> Outcome:
    """Each distribution of the manifest is installed once, in its version and (from source) way, and no other is."""
    found: dict[str, list[Distribution]] = defaultdict(list)
    for item in distributions(image):
        found[item.key].append(item)
    wheels, sources = image.manifest["wheels"], distributed(image.manifest)
    looked = [copies_fault(found, item, same_version) for item in wheels]
    for made in sources:
        copies = found.get(normal_name(made["name"]), ())
        looked.append(copies_fault(found, made, same_release))
        looked += [install_fault(image, made, copies[0])] if len(copies) == 1 else []
    faults = [fault for fault in looked if fault]
    wanted = {normal_name(item["name"]) for item in (*wheels, *sources)}
    extra = sorted(set(found) - wanted)
    elsewhere = [name for name in extra if denied_by(image, name) or name in clashing(image)]
    faults += [f"{name} {found[name][0].version} is not in the manifest" for name in extra if name not in elsewhere]
    on_top = ((f"{item.name} {item.version}", image.shown(place)) for place, item in added(image))
    faults += [f"{what} in {place} is not in the manifest" for what, place in on_top]
    told = f"; also {', '.join(elsewhere)}: see static.denied and static.exclusive" if elsewhere else ""
    return judged(faults, f"{len(wanted)} distributions as in the manifest{told}")


def copies_fault(
    found: Mapping[str, Sequence[Distribution]], item: Mapping[str, Any], same: Callable[[str, str], bool]
) -> str:
    """Why a distribution is not installed once and in its version (null: in any); "" when it is."""
    name, version = normal_name(item["name"]), item["version"]
    copies = found.get(name, ())
    if not copies:
        return f"{name} {version} is not installed" if version else f"{name} is not installed"
    if len(copies) > 1:
        return f"{name} is installed {len(copies)} times: {', '.join(sorted(copy.folder for copy in copies))}"
    if version and not same(version, copies[0].version):
        return f"{name} is {copies[0].version}, the manifest says {version}"
    return ""


def clashes(image: Image) -> list[list[Distribution]]:
    """What is installed of each exclusive group of the manifest of which more than one is."""
    here = {item.key: item for item in distributions(image)}
    groups = ([here[name] for name in map(normal_name, group) if name in here] for group in image.manifest["exclusive"])
    return [group for group in groups if len(group) > 1]


def clashing(image: Image) -> set[str]:
    """The names of all that clashes."""
    return {item.key for group in clashes(image) for item in group}


def exclusive_check(image: Image) -> Outcome:
    """No two distributions that overwrite each other: triton and triton-ascend both own the folder triton (T07)."""
    faults = [
        f"{' and '.join(f'{item.name} {item.version}' for item in group)} are installed together"
        for group in clashes(image)
    ]
    return judged(faults, f"{len(image.manifest['exclusive'])} groups, at most one of each installed")


def denied_by(image: Image, name: str) -> str:
    """The pattern of the manifest's deny list that a name matches; "" when none does."""
    patterns: list[str] = image.manifest["deny"]
    return next((item for item in patterns if fnmatch.fnmatchcase(name, item.lower().replace("_", "-"))), "")


def denied_check(image: Image) -> Outcome:
    """Nothing of the deny list (CUDA packages) is installed; who asked for it is named."""
    faults = []
    clash = clashing(image)  # told by static.exclusive
    for item in distributions(image):
        pattern = denied_by(image, item.key)
        if pattern and item.key not in clash:
            askers = sorted({other.name for other in distributions(image) if item.key in other.requires})
            asked = f", asked by {', '.join(askers)}" if askers else ""
            faults.append(f"{item.name} {item.version} is installed (denied: {pattern}){asked}")
    return judged(faults, f"none of {len(image.manifest['deny'])} patterns is installed")


def pip_check(image: Image) -> Outcome:
    """`pip check` says nothing but what the manifest allows."""
    child = run(image, [image.python, "-m", "pip", "--disable-pip-version-check", "--no-input", "check"])
    if child.code is None or child.code < 0:
        return failed(f"pip check: {child.ending}")
    if "No module named pip" in child.err:
        return failed(f"pip is not installed in {VENV}")
    patterns = [re.compile(item) for item in image.manifest["checks"]["pip_check_allow"]]
    lines = [
        line for line in map(str.strip, child.out.splitlines()) if line not in {"", "No broken requirements found."}
    ]
    faults = [line for line in lines if not any(item.search(line) for item in patterns)]
    faults = [line for line in faults if not lacks_left_out(image, line)]
    if child.code != 0 and not lines:
        return failed(f"pip check ended with code {child.code}", child.last_words)
    left_out = [line for line in lines if lacks_left_out(image, line)]
    allowed = len(lines) - len(faults) - len(left_out)
    told = f"; {allowed} lines allowed by the manifest" if allowed else ""
    told += f"; skipped: {' '.join(left_out)}" if left_out else ""
    return judged(faults, f"no broken requirements{told}")


def lacks_left_out(image: Image, line: str) -> bool:
    """Whether a line of `pip check` says that something lacks what the manifest leaves out."""
    found = re.search(r" requires ([\w.-]+), which is not installed", line)
    names = {normal_name(item["name"]) for item in image.manifest.get("left_out", ())}
    return found is not None and normal_name(found[1]) in names
