"""The check of shared libraries: each finds what it needs, the manifest's load, its compiled extensions are there."""

import os
import re
import stat

from verifying.elf import MACHINES, Elf, read_elf
from verifying.image import VENV, Image
from verifying.loader import DRIVER_LIBRARIES, entries, missing_library, resolves
from verifying.manifest import source_paths
from verifying.outcome import Outcome, judged
from verifying.worker import work

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
        if elf.machine != MACHINES[arch] or elf.bits != 64:
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
    told = f"; {', '.join(sorted(driver))} come with the host's driver" if driver else ""
    told += f"; {excused} that are not found are allowed by the manifest" if excused else ""
    return judged(faults, f"{looked} shared libraries find what they need{told}")


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
    """Loads the manifest's libraries in a child; what lacks a library of the driver passes, and it is noted."""
    paths = image.manifest["checks"]["libraries"]
    preloaded = entries(image.manifest["env"], "LD_PRELOAD")  # static.preload tells when one is gone
    faults = []
    for path, answer in zip(
        paths, work(image, [{"do": "library", "path": image.path(path)} for path in paths]), strict=True
    ):
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
