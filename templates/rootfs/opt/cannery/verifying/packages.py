"""What is installed: distributions and their records, sources and their trees; no other, and none that clash."""

import csv
import fnmatch
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from verifying.child import run
from verifying.image import OVERLAY, VENV, Image, read_text
from verifying.manifest import distributed, installed
from verifying.outcome import Outcome, failed, judged
from verifying.versions import normal_name, same_release, same_version


@dataclass(frozen=True)
class Distribution:
    """One .dist-info or .egg-info folder of site-packages. `key` and `requires` are normalised names."""

    name: str
    version: str
    folder: str
    requires: tuple[str, ...]

    @property
    def key(self) -> str:
        """The normalised name."""
        return normal_name(self.name)


def distributions(image: Image) -> list[Distribution]:
    """Everything installed in the venv's site-packages, duplicates included."""
    return image.remember("distributions", lambda: sorted(_installed(image.site), key=lambda item: item.key))


def added(image: Image) -> list[tuple[str, Distribution]]:
    """What a user's `pip install` put into the environment on top of the venv, each with its site-packages folder."""
    places = map(image.path, image.find(f"{OVERLAY}/lib/python3*/site-packages"))
    return [(place, item) for place in places for item in sorted(_installed(place), key=lambda item: item.key)]


def _installed(site: str) -> Iterator[Distribution]:
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
            fields.get("Name", stem), fields.get("Version", rest), name, tuple(map(normal_name, requires))
        )


class Recorded(NamedTuple):
    """One row of a RECORD, with the distribution's key. `size` None and `digest` "" where the row has none."""

    owner: str
    path: str
    digest: str
    size: int | None


def records(image: Image) -> dict[str, list[Recorded] | None]:
    """RECORD by normalised name, of the manifest's distributions; None where there is none."""
    wanted = {normal_name(item["name"]) for item in installed(image.manifest)}
    return {key: rows for key, rows in all_records(image).items() if key in wanted}


def all_records(image: Image) -> dict[str, list[Recorded] | None]:
    """The same of everything installed; of a distribution that is there twice, the rows of both."""

    def read() -> dict[str, list[Recorded] | None]:
        found: dict[str, list[Recorded] | None] = {}
        for item in distributions(image):
            rows, before = _record(image.site, item), found.get(item.key)
            found[item.key] = before if rows is None else [*(before or ()), *rows]
        return found

    return image.remember("records", read)


def _record(site: str, item: Distribution) -> list[Recorded] | None:
    try:
        with open(os.path.join(site, item.folder, "RECORD"), encoding="utf-8", newline="") as file:
            rows = [(*row, "", "")[:3] for row in csv.reader(file) if row]
    except OSError:
        return None
    found = []
    for name, digest, size in rows:
        path = f"{site}/{name}"
        path = os.path.normpath(path) if ".." in name else path  # 35,000 of them: normpath costs
        found.append(Recorded(item.key, path, digest, int(size) if size.isdigit() else None))
    return found


def sources_check(image: Image) -> Outcome:
    """Every tree, and every tree that an editable install points to, is there and holds files."""
    sources = image.manifest["sources"]
    faults = [f"{item['component']}: {fault}" for item in sources if (fault := tree_fault(image, item))]
    trees = [f"{item['component']} in {item['path']}" for item in sources if item["path"]]
    notes = [f"{item['component']} without native parts ({item['without']})" for item in sources if item["without"]]
    notes += [f"{item['name']} left out ({item['reason']})" for item in image.manifest.get("left_out", ())]
    return judged(faults, "; ".join([", ".join(trees) or "the manifest lists no source trees", *notes]))


def tree_fault(image: Image, item: Mapping[str, Any]) -> str:
    """What is wrong with a source's tree; "" when it is there, or is not to be."""
    path = item["path"]
    if path is None:
        return ""
    if not image.exists(path):
        return f"{path} does not exist"
    if not os.path.isdir(image.path(path)):
        return f"{path} is no folder"
    return "" if any(not stat.S_ISDIR(entry.mode) for entry in image.tree(path)) else f"{path} is empty"


def wheels_check(image: Image) -> Outcome:
    """Each distribution of the manifest is installed once and in its version, no other is, and none that must not be.

    Where code comes from, if a source was reinstalled in another way, is static.shadow's finding.
    """
    found: dict[str, list[Distribution]] = defaultdict(list)
    for item in distributions(image):
        found[item.key].append(item)
    wheels, sources = image.manifest["wheels"], distributed(image.manifest)
    looked = [copies_fault(found, item, same_version) for item in wheels]
    looked += [copies_fault(found, item, same_release) for item in sources]
    faults = [fault for fault in looked if fault] + clashes(image) + denied(image)
    wanted = {normal_name(item["name"]) for item in (*wheels, *sources)}
    faults += [f"{name} {found[name][0].version} is not in the manifest" for name in sorted(set(found) - wanted)]
    on_top = ((f"{item.name} {item.version}", image.shown(place)) for place, item in added(image))
    faults += [f"{what} in {place} is not in the manifest" for what, place in on_top]
    return judged(faults, f"{len(wanted)} distributions as in the manifest")


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


def clashes(image: Image) -> list[str]:
    """Distributions that overwrite each other: triton and triton-ascend both own the folder triton (T07)."""
    here = {item.key: f"{item.name} {item.version}" for item in distributions(image)}
    groups = ([here[name] for name in map(normal_name, group) if name in here] for group in image.manifest["exclusive"])
    return [f"{' and '.join(group)} are installed together" for group in groups if len(group) > 1]


def denied(image: Image) -> list[str]:
    """What is installed of the manifest's deny list (CUDA packages), with who asked for it."""
    faults = []
    for item in distributions(image):
        patterns = (pattern.lower().replace("_", "-") for pattern in image.manifest["deny"])
        pattern = next((pattern for pattern in patterns if fnmatch.fnmatchcase(item.key, pattern)), "")
        askers = sorted({other.name for other in distributions(image) if item.key in other.requires})
        asked = f", asked by {', '.join(askers)}" if askers else ""
        faults += [f"{item.name} {item.version} is installed (denied: {pattern}){asked}"] if pattern else []
    return faults


def pip_check(image: Image) -> Outcome:
    """`pip check` reports only what the manifest allows."""
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
    notes = f"; {allowed} lines allowed by the manifest" if allowed else ""
    notes += f"; skipped: {' '.join(left_out)}" if left_out else ""
    return judged(faults, f"no broken requirements{notes}")


def lacks_left_out(image: Image, line: str) -> bool:
    """Whether a line of `pip check` is about a package that the manifest leaves out."""
    found = re.search(r" requires ([\w.-]+), which is not installed", line)
    names = {normal_name(item["name"]) for item in image.manifest.get("left_out", ())}
    return found is not None and normal_name(found[1]) in names
