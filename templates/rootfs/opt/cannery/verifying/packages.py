"""What is installed: distributions and their records, sources and their trees; no other, and none that clash.

Files are as distributions or patches recorded them, and there is none that nothing recorded.
"""

import base64
import csv
import fnmatch
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from patched import faults as patch_faults
from verifying.child import run
from verifying.image import OVERLAY, VENV, Entry, Image, below, digest_of, read_text
from verifying.manifest import distributed, installed, normal_name, same_release, same_version, source_paths
from verifying.outcome import Outcome, failed, judged, passed


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
    faults = []
    for item in (item for item in sources if item["path"] is not None):
        path = item["path"]
        if not os.path.isdir(image.path(path)):
            fault = f"{path} is no folder" if image.exists(path) else f"{path} does not exist"
            faults.append(f"{item['component']}: {fault}")
        elif all(stat.S_ISDIR(entry.mode) for entry in image.tree(path)):
            faults.append(f"{item['component']}: {path} is empty")
    trees = [f"{item['component']} in {item['path']}" for item in sources if item["path"]]
    notes = [f"{item['component']} without native parts ({item['without']})" for item in sources if item["without"]]
    notes += [f"{item['name']} left out ({item['reason']})" for item in image.manifest.get("left_out", ())]
    return judged(faults, "; ".join([", ".join(trees) or "the manifest lists no source trees", *notes]))


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


COMPILED = re.compile(r"(.*/)__pycache__/([^/]+)\.(cpython-3\d+)(\.opt-[12])?\.pyc", re.DOTALL)


SHOWN = 5
NUMBA = re.compile(r".*/__pycache__/[^/]+\.nb[ic]", re.DOTALL)  # where numba keeps what it compiled, when it may write


def stranger_faults(image: Image, paths: Iterable[str]) -> list[str]:
    """One fault that names files of site-packages in no RECORD, and not of the manifest's patches, checks and sources.

    The first of them are named, those at the top before others.
    """
    places, start = set(paths), f"{image.site}/"
    known = {row.path for rows in all_records(image).values() for row in rows or ()}
    named = of_patches(image) | {image.path(item["path"]) for item in image.manifest["checks"]["files"]}
    sources = list(map(image.path, source_paths(image.manifest)))
    # A recorded file that is gone is a fault of its own; its .pyc is not reported as well.
    notes = {row.path for rows in records(image).values() for row in rows or ()} - named
    has_source = notes | ((known | named) & places)
    # Other checks report these folders: of a name that is not in the manifest, twice there, or without RECORD.
    bare = {item.folder for item in distributions(image) if f"{start}{item.folder}/RECORD" not in places}

    def explained(path: str) -> bool:
        compiled = COMPILED.fullmatch(path) if path.endswith(".pyc") else None
        return (
            (compiled is not None and f"{compiled[1]}{compiled[2]}.py" in has_source)
            or path[len(start) :].partition("/")[0] in bare
            or NUMBA.fullmatch(path) is not None
            or below(path, sources)
        )

    found = [path for path in places - known - named if path.startswith(start) and not explained(path)]
    if not found:
        return []
    found.sort(key=lambda path: (path.count("/"), path))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    what = "file is" if len(found) == 1 else "files are"
    return [f"{len(found)} {what} in no RECORD: {', '.join(map(image.shown, found[:SHOWN]))}{more}"]


def of_patches(image: Image) -> set[str]:
    """The files that the manifest's patches change, add or remove."""
    return {image.path(file["path"]) for patch in image.manifest["patches"] for file in patch["files"]}


# Bytes. Above are shared libraries and data (1.4 of 1.9 GiB, but 100 of 35,000 files), where reading costs most from a
# cold disk and a changed file nearly always has another size. 35,000 files, warm, 2 busy cores: sizes alone 0.8 s,
# hashes below 1 MiB 2.1 s, all hashes 4.1 s.
HASH_BELOW = 1 << 20


class Piece(NamedTuple):
    """A file to compare: the RECORD rows of its owners, its entry (None: not in the venv), whether it is a program."""

    rows: Sequence[Recorded]
    entry: Entry | None
    program: bool  # a console script


def files_check(image: Image) -> Outcome:
    """Every file is as in its RECORD (size; hash below 1 MiB), and every file is in a RECORD.

    Console scripts can be executed, and the files of the manifest's checks are as recorded there. A .pyc has the hash
    of its source, which Python compares at each import.
    """
    entries = {entry.path: entry for entry in image.tree(VENV) if not stat.S_ISDIR(entry.mode)}
    faults = [f"{name}: has no RECORD" for name, rows in records(image).items() if rows is None]
    every = list(pieces(image, entries))
    blocks = [every[at : at + 500] for at in range(0, len(every), 500)]
    bad: dict[str, list[str]] = defaultdict(list)
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing lets go of the interpreter's lock
        found = pool.map(lambda block: [altered(piece) for piece in block], blocks)
        for piece, what in zip(every, chain.from_iterable(found), strict=True):
            if what:
                bad[piece.rows[0].owner].append(f"{image.shown(piece.rows[0].path)} {what}")
    for name, all_of_it in bad.items():
        more = f" and {len(all_of_it) - 3} more" if len(all_of_it) > 3 else ""
        faults.append(f"{name}: reinstalled or overwritten: {'; '.join(all_of_it[:3])}{more}")
    faults += stranger_faults(image, entries) + listed_files(image)
    return judged(faults, f"{len(every)} files of {len(records(image))} distributions as recorded, no others")


def pieces(image: Image, entries: Mapping[str, Entry]) -> Iterator[Piece]:
    """The files to compare: the recorded ones, but for patched files, RECORD files and .pyc files."""
    patched, programs = of_patches(image), image.path(f"{VENV}/bin/")
    owners: dict[str, list[Recorded]] = defaultdict(list)
    for row in (row for rows in records(image).values() for row in rows or ()):
        if row.path not in patched and not row.path.endswith((".pyc", "/RECORD")):
            owners[row.path].append(row)
    for path, rows in owners.items():
        yield Piece(rows, entries.get(path), path.startswith(programs))


def altered(piece: Piece) -> str:
    """How a file differs from its RECORD rows; "" when it matches one of them (that of the last installed owner)."""
    rows, path = piece.rows, piece.rows[0].path
    if piece.entry and not stat.S_ISLNK(piece.entry.mode):
        size, mode = piece.entry.size, piece.entry.mode
    else:
        try:
            about = os.stat(path)  # a link, or outside the venv
        except OSError:
            return "is missing"
        size, mode = about.st_size, about.st_mode
    sized = [row for row in rows if row.size is None or row.size == size]
    if not sized:
        return f"has {size} bytes, recorded are {rows[0].size}"
    if piece.program and mode & 0o111 != 0o111:
        return f"cannot be executed (mode {stat.S_IMODE(mode):04o})"
    hashes = {row.digest.partition("=")[2] for row in sized if row.digest.startswith("sha256=")}
    if not hashes or any(not row.digest for row in sized) or size >= HASH_BELOW:
        return ""
    try:
        found = bytes.fromhex(digest_of(path))
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if base64.urlsafe_b64encode(found).decode().rstrip("=") in hashes else "has other content"


def listed_files(image: Image) -> list[str]:
    """Faults of the files that the manifest's checks name."""
    faults = []
    for item in image.manifest["checks"]["files"]:
        if not image.exists(item["path"]):
            faults.append(f"{item['path']} does not exist")
        elif item["sha256"] and not item["sha256"].endswith(digest_of(image.path(item["path"]))):
            faults.append(f"{item['path']} has other content than the manifest says")
    return faults


def patches_check(image: Image) -> Outcome:
    """Every patched file has the patched content, also in a tree that a user mounted over the image's.

    A copy that an installer put in front of a tree is reported by static.shadow.
    """
    patches, left_out = image.manifest["patches"], image.manifest.get("patches_left_out", ())
    notes = [f"{item['name']} ({item['component']}) left out: {item['reason']}" for item in left_out]
    if not patches:
        return passed("; ".join(["the manifest lists no patches", *notes]))
    count = sum(len(patch["files"]) for patch in patches)
    good = "; ".join([f"{len(patches)} patches in force, {count} files", *notes])
    return judged(patch_faults(patches, image.path), good)
