"""Checks of what was compiled: shared libraries find what they need, kernels are for the image's chip.

A library is looked for as the dynamic loader does it: by what it reads of a shared object and of its cache.
"""

import glob
import mmap
import os
import re
import stat
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from verifying.child import run, work
from verifying.image import VENV, Image
from verifying.manifest import installed, normal_name, scripts, source_paths
from verifying.outcome import Outcome, judged, skipped, warning


class Elf(NamedTuple):
    """The dynamic section of a shared object. `machine` is 0 of one that no image is for: 32 bits, or big-endian."""

    machine: int
    needed: tuple[str, ...]
    soname: str
    runpath: tuple[str, ...]


MACHINES = {"amd64": 62, "arm64": 183}
DYNAMIC, LOAD = 2, 1
NEEDED, STRTAB, SONAME, RPATH, RUNPATH = 1, 5, 14, 15, 29


def read_elf(path: str) -> Elf | None:
    """The dynamic section of an ELF file; None when it is not ELF. ValueError when it is broken."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _dynamic_section(data)
        except (struct.error, IndexError) as error:
            raise ValueError(f"broken ELF file ({error})") from error


def _dynamic_section(data: mmap.mmap) -> Elf:
    """What the loader searches by. ValueError, struct.error, IndexError for a broken file."""
    if data[4] not in {1, 2} or data[5] not in {1, 2}:
        raise ValueError("broken ELF file (class or byte order)")
    if (data[4], data[5]) != (2, 1):
        return Elf(0, (), "", ())
    (machine,) = struct.unpack_from("<H", data, 18)
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    # (type, file offset, address, bytes in the file) of each program header
    segments = [struct.unpack_from("<I4xQQ8xQ", data, headers + at * size) for at in range(count)]
    dynamic = next((item for item in segments if item[0] == DYNAMIC), None)
    tags: list[tuple[int, int]] = []
    one = struct.Struct("<qQ")
    _, start, _, length = dynamic or (0, 0, 0, 0)
    for place in range(start, start + length - one.size + 1, one.size):
        tag, value = one.unpack_from(data, place)
        if tag == 0:  # the entry that ends the section
            break
        tags.append((tag, value))
    table = next((value for tag, value in tags if tag == STRTAB), 0)
    places = (off + table - at for kind, off, at, size in segments if kind == LOAD and 0 <= table - at < size)
    strings = next(places, 0)

    def texts(wanted: int) -> tuple[str, ...]:
        return tuple(_string(data, strings + value) for tag, value in tags if tag == wanted)

    paths = texts(RUNPATH) or texts(RPATH)  # ld.so ignores RPATH where there is a RUNPATH
    runpath = tuple(part for text in paths for part in text.split(":") if part)
    return Elf(machine, texts(NEEDED), next(iter(texts(SONAME)), ""), runpath)


def _string(data: mmap.mmap, at: int) -> str:
    stop = data.find(b"\0", at)
    if not 0 < at < len(data) or stop < 0:
        raise ValueError("broken ELF file (string table)")
    return data[at:stop].decode("utf-8", "replace")


DRIVER = "/usr/local/Ascend/driver"
# Libraries that the host's driver mount brings (driver/lib64/driver and lib64/common); an image has none of them.
DRIVER_LIBRARIES = re.compile(
    r"lib(ascend_hal|ascend_rdma_lite|c_sec|dcmi|devmmap|drvdsmi_host|drvdevdrv|drvhdc_host|mmpa|tsdclient_driver|slog_drv)\.so(\.\d+)*"
)
MISSING = re.compile(r"(?:^|[\s'\"(:])([\w./+-]+\.so[\w.]*): cannot open shared object file")


def entries(env: Mapping[str, str], name: str) -> list[str]:
    """The entries of a list variable, as paths without doubled or trailing slashes."""
    parts = re.split(r"[:\s]+" if name == "LD_PRELOAD" else ":", env.get(name, ""))
    return [os.path.normpath(part).replace("//", "/") for part in parts if part]


def folders(image: Image) -> list[str]:
    """Where the loader looks: LD_LIBRARY_PATH, then the default folders of this architecture."""
    triplet = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[image.manifest["target"]["arch"]]
    default = [f"/lib/{triplet}", "/lib", f"/usr/lib/{triplet}", "/usr/lib", "/lib64", "/usr/lib64"]
    return list(dict.fromkeys([*entries(image.env, "LD_LIBRARY_PATH"), *default]))


def system_libraries(image: Image) -> set[str]:
    """Names that the loader finds for every program of the image."""

    def look() -> set[str]:
        names: set[str] = set()
        for folder in folders(image):
            where = image.path(folder) if folder.startswith("/") else os.path.join(image.cwd, folder)
            if os.path.isdir(where):
                here = (name for name in os.listdir(where) if ".so" in name)
                names |= {name for name in here if os.path.exists(os.path.join(where, name))}
        return names | {name for name, path in cached_libraries(image) if image.exists(path)}

    return image.remember("system libraries", look)


def cached_libraries(image: Image) -> list[tuple[str, str]]:
    """(name, path) of each library in the loader's cache, as ldconfig prints it; [] without ldconfig."""
    try:
        child = run(image, [image.path("/sbin/ldconfig"), "-p", "-C", image.path("/etc/ld.so.cache")])
    except OSError:
        return []
    return re.findall(r"^\s+(\S+) .*=> (\S+)$", child.out, re.MULTILINE)


def resolves(image: Image, path: str, elf: Elf, name: str) -> bool:
    """Whether the loader finds a library by the file's run path, LD_LIBRARY_PATH, its cache or the default folders."""
    if "/" in name:
        return image.exists(name)
    if name in system_libraries(image):
        return True
    origin = os.path.dirname(os.path.realpath(path))
    for folder in elf.runpath:
        where = re.sub(r"\$(ORIGIN|\{ORIGIN\})", lambda _: origin, folder)
        where = where if "ORIGIN" in folder else image.path(where)
        if os.path.exists(os.path.join(where, name)):
            return True
    return False


def missing_library(causes: Iterable[str]) -> str:
    """The library that the loader could not find, by the first cause that names one; "" when none does."""
    found = (match.group(1) for cause in causes for match in MISSING.finditer(cause))
    return os.path.basename(next(found, ""))


def advice(image: Image, name: str) -> str:
    """Why the loader may not find a library: its folder is not in the environment, or the image does not hold it."""
    if DRIVER_LIBRARIES.fullmatch(name):
        return f"the host's driver brings it (mount {DRIVER}/lib64)"
    base = image.manifest["base"]
    home, wanted = base["toolkit_home"], entries(image.manifest["env"], "LD_LIBRARY_PATH")
    atb = "/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_*/lib"
    places = [*wanted, f"{home}/lib64", f"{home}/*/lib64", atb, "/usr/local/lib"]
    there = sorted({path for folder in places for path in image.find(f"{folder}/{glob.escape(name)}")})
    if there:
        setter = " and ".join(base["set_env"]) or "the image"
        return f"it is in {os.path.dirname(there[0])}, which is missing in LD_LIBRARY_PATH (set by {setter})"
    gone = [path for path in [home, *scripts(base)] if not image.exists(path)]
    if gone:
        return f"{', '.join(gone)} does not exist: the CANN toolkit is not in this image"
    return f"no folder of LD_LIBRARY_PATH or of {home} holds it"


OWNER, MODULE = "vllm-ascend", "vllm_ascend"
# What its build writes into the package: the device type; before 0.12 the name of the chip.
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
    reason = next((item["without"] for item in sources if normal_name(item["name"]) == OWNER), "")
    if not faults and not listed and reason:
        return skipped(f"{OWNER} has no kernels here: {reason}")
    return judged(
        faults, f"{OWNER} is built for {chip}: {listed}" if listed else f"{OWNER} states no chip, has no kernels"
    )


def chip_of(word: str) -> str:
    """The image's word for a chip; "" for a name that is not known."""
    return next((chip for chip, names in CHIPS.items() if names.fullmatch(word)), "")


def chips_named(image: Image) -> list[list[tuple[str, str]]]:
    """(word, path) of each chip that the build wrote down, and of each folder of compiled kernels, in CANN's words."""
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
        # Wheels carry helpers for other processors, but an extension module has to be for this one.
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
    # A reinstall without kernels leaves a package without its extensions (P09).
    faults += [
        f"{item['component']}: no compiled extension {item['path']}"
        for item in image.manifest["checks"]["native"]
        if not any(os.path.getsize(image.path(path)) for path in image.find(item["path"]))
    ]
    faults += load_faults(image, driver)
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
