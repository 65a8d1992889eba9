"""The check of the device type: what was compiled for one chip stands in an image for that chip (C01)."""

import os
import re
from collections.abc import Iterator

from verifying.image import Image
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
    "a5": re.compile(r"A5|(ascend)?950\S*|(ascend)?910_95\d*", re.IGNORECASE),
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
    groups = [list(build_info(image)), list(kernels(image))]
    for group in groups:
        known = [(chip_of(word), word, path) for word, path in group if chip_of(word)]
        if known and chip not in {found for found, _, _ in known}:
            found, word, path = known[0]
            faults.append(f"{OWNER} is built for {found} ({word} in {path}), this image is for {chip}")
    said = ", ".join(f"{word} in {path}" for group in groups for word, path in group)
    if not faults and any(not chip_of(word) for group in groups for word, _ in group):
        return warning(f"{OWNER} is built for a chip of unknown name ({said}), this image is for {chip}")
    if not faults and not said and (reason := without_kernels(image)):
        return skipped(f"{OWNER} has no kernels here: {reason}")
    return judged(faults, f"{OWNER} is built for {chip}: {said}" if said else f"{OWNER} states no chip, has no kernels")


def without_kernels(image: Image) -> str:
    """Why the manifest leaves the kernels out; "" when it does not."""
    mine = (item["without"] for item in image.manifest["sources"] if normal_name(item["name"]) == OWNER)
    return next(mine, "")


def chip_of(word: str) -> str:
    """The image's word for a chip; "" for a name that is not known."""
    return next((chip for chip, names in CHIPS.items() if names.fullmatch(word)), "")


def packages(image: Image) -> Iterator[str]:
    """Where in the image the package may be: in site-packages, in a source tree."""
    for folder in (image.shown(image.site), *source_paths(image.manifest)):
        if image.exists(f"{folder}/{MODULE}"):
            yield f"{folder}/{MODULE}"


def build_info(image: Image) -> Iterator[tuple[str, str]]:
    """(word, file) of what the build wrote down."""
    for package in packages(image):
        path = f"{package}/_build_info.py"
        for match in STATED.finditer(image.text(path)):
            yield match[1], path


def kernels(image: Image) -> Iterator[tuple[str, str]]:
    """(word, folder) of compiled kernels: their folders have the names that CANN's compiler gives to chips."""
    for package in packages(image):
        found = [path for kind in ("config", "kernel") for path in image.find(f"{package}/{KERNELS}/{kind}/ascend*")]
        yield from {os.path.basename(path): path for path in found}.items()
