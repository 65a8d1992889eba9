"""Checks of what was compiled: shared libraries find what they need, kernels are for the image's chip."""

import os
import re
import stat

from verifying.child import work
from verifying.image import VENV, Image
from verifying.loader import DRIVER_LIBRARIES, MACHINES, Elf, entries, missing_library, read_elf, resolves
from verifying.manifest import installed, source_paths
from verifying.outcome import Outcome, judged, skipped, warning
from verifying.versions import normal_name

OWNER, MODULE = "vllm-ascend", "vllm_ascend"
# What its build writes down: the device type, and before 0.12 the name of the chip instead.
STATED = re.compile(r"^__(?:device_type|soc_version)__\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)
KERNELS = "_cann_ops_custom/vendors/*/op_impl/ai_core/tbe"
# The image's chips, in the words of that build and in CANN's names of chips and of folders with kernels.
CHIPS = {
    "910b": re.compile(r"A2|(ascend)?910b\S*", re.IGNORECASE),
    "a3": re.compile(r"A3|(ascend)?910_93\d*|(ascend)?910c", re.IGNORECASE),
    "310p": re.compile(r"_?310P|(ascend)?310p\S*", re.IGNORECASE),
    "950": re.compile(r"A5|(ascend)?950\S*|(ascend)?910_95\d*", re.IGNORECASE),
}


def device_check(image: Image) -> Outcome:
    """The kernels of the manifest's sources, and what vllm-ascend was built for, fit the chip of the target."""
    chip, sources = image.manifest["target"]["chip"], image.manifest["sources"]
    faults = [
        f"{item['component']} has kernels for {' and '.join(item['chips'])}, this image is for {chip}"
        for item in sources
        if item["chips"] and chip not in item["chips"]
    ]
    if OWNER not in {normal_name(item["name"]) for item in (*installed(image.manifest), *sources)}:
        return judged(faults, f"{OWNER} is not in this image")
    groups = chips_named(image)
    for group in groups:
        known = [(chip_of(word), word, path) for word, path in group if chip_of(word)]
        if known and chip not in {found for found, _, _ in known}:
            found, word, path = known[0]
            faults.append(f"{OWNER} is built for {found} ({word} in {path}), this image is for {chip}")
    listed = ", ".join(f"{word} in {path}" for group in groups for word, path in group)
    if not faults and any(not chip_of(word) for group in groups for word, _ in group):
        return warning(f"{OWNER} is built for a chip of unknown name ({listed}), this image is for {chip}")
    if not faults and not listed and (reason := without_kernels(image)):
        return skipped(f"{OWNER} has no kernels here: {reason}")
    return judged(
        faults, f"{OWNER} is built for {chip}: {listed}" if listed else f"{OWNER} states no chip, has no kernels"
    )


def without_kernels(image: Image) -> str:
    """Why the manifest leaves the kernels out; "" when it does not."""
    mine = (item["without"] for item in image.manifest["sources"] if normal_name(item["name"]) == OWNER)
    return next(mine, "")


def chip_of(word: str) -> str:
    """The image's word for a chip; "" for a name that is not known."""
    return next((chip for chip, names in CHIPS.items() if names.fullmatch(word)), "")


def chips_named(image: Image) -> list[list[tuple[str, str]]]:
    """(word, path) of what the build wrote down, and of the folders of compiled kernels, named as CANN names chips."""
    stated: list[tuple[str, str]] = []
    kernels: list[tuple[str, str]] = []
    for folder in (image.shown(image.site), *source_paths(image.manifest)):
        path = f"{folder}/{MODULE}/_build_info.py"
        stated += [(match[1], path) for match in STATED.finditer(image.text(path))]
        found = [
            name for kind in ("config", "kernel") for name in image.find(f"{folder}/{MODULE}/{KERNELS}/{kind}/ascend*")
        ]
        kernels += {os.path.basename(name): name for name in found}.items()
    return [stated, kernels]


# Threading layers of numba that its wheel links and does not bring; numba tries them, and does without.
OPTIONAL_LIBRARIES = re.compile(r".*/numba/.* needs lib(tbb\.so\.12|gomp\.so\.1(\.0\.0)?), .*")


def libraries_check(image: Image) -> Outcome:
    """Each shared library finds what it needs; the manifest's libraries load, its compiled extensions are there."""
    arch = image.manifest["target"]["arch"]
    faults, elves = read_libraries(image)
    inside = {os.path.basename(path) for path in elves} | {elf.soname for elf in elves.values()}
    allowed = [re.compile(item) for item in image.manifest["checks"].get("library_allow", ())]
    driver: set[str] = set()
    looked = excused = 0
    for path, elf in elves.items():
        # Wheels carry helpers for other processors; an extension module is none.
        if elf.machine != MACHINES[arch]:
            extension = re.search(r"\.(cpython-3|abi3)", os.path.basename(path))
            faults += [f"{image.shown(path)} is for another processor"] if extension else []
            continue
        looked += 1
        for name in elf.needed:
            if name in inside or resolves(image, path, elf, name):
                continue
            fault = f"{image.shown(path)} needs {name}, which is not found"
            if DRIVER_LIBRARIES.fullmatch(name):
                driver.add(name)
            elif any(item.search(fault) for item in allowed):
                excused += 1
            elif not OPTIONAL_LIBRARIES.fullmatch(fault):
                faults.append(fault)
    faults += native_faults(image) + load_faults(image, driver)
    notes = f"; {', '.join(sorted(driver))} come with the host's driver" if driver else ""
    notes += f"; {excused} that are not found are allowed by the manifest" if excused else ""
    return judged(faults, f"{looked} shared libraries find what they need{notes}")


def read_libraries(image: Image) -> tuple[list[str], dict[str, Elf]]:
    """(faults, dynamic sections by path) of the shared libraries of the venv, of source trees, and of the manifest."""
    faults: list[str] = []
    elves: dict[str, Elf] = {}
    named = [image.path(path) for path in image.manifest["checks"]["libraries"] if image.exists(path)]
    trees = [VENV, *source_paths(image.manifest)]
    regular = (entry.path for tree in trees for entry in image.tree(tree) if stat.S_ISREG(entry.mode))
    for path in [*(path for path in regular if re.search(r"\.so(\.\d\w*)*$", path)), *named]:
        try:
            elf = read_elf(path)
        except (OSError, ValueError) as error:
            faults.append(f"{image.shown(path)}: {error}")
            continue
        if elf is None and path in named:
            faults.append(f"{image.shown(path)} is not a shared library")
        elif elf is not None and not any(name.startswith("libc.musl-") for name in elf.needed):
            elves[path] = elf
    return faults, elves


def native_faults(image: Image) -> list[str]:
    """Compiled extensions that the manifest promises and the image lacks (a reinstall without kernels, P09)."""
    return [
        f"{item['component']}: no compiled extension {item['path']}"
        for item in image.manifest["checks"]["native"]
        if not any(os.path.getsize(image.path(path)) for path in image.find(item["path"]))
    ]


def load_faults(image: Image, driver: set[str]) -> list[str]:
    """Loads the manifest's libraries in a child; one that needs a library of the driver passes, with a note."""
    paths = image.manifest["checks"]["libraries"]
    preloaded = entries(image.manifest["env"], "LD_PRELOAD")  # static.preload reports one that is missing
    faults = []
    tasks = [{"do": "library", "path": image.path(path)} for path in paths]
    for path, answer in zip(paths, work(image, tasks), strict=True):
        missing = missing_library(answer.causes)
        if answer.ok:
            continue
        if not image.exists(path):
            faults += [] if path in preloaded else [f"{path} does not exist"]
        elif DRIVER_LIBRARIES.fullmatch(missing):
            driver.add(missing)
        else:
            faults.append(f"{path} does not load: {'; '.join(answer.causes)}")
    return faults
