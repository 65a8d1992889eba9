"""How the dynamic loader finds a library: what it reads of a shared object and of its cache, and where it looks."""

import glob
import mmap
import os
import re
import struct
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

from verifying.child import run
from verifying.image import Image
from verifying.manifest import scripts


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
    tags = _tags(data, dynamic[1], dynamic[3]) if dynamic else []
    table = next((value for tag, value in tags if tag == STRTAB), 0)
    places = (off + table - at for kind, off, at, length in segments if kind == LOAD and 0 <= table - at < length)
    strings = next(places, 0)

    def texts(wanted: int) -> tuple[str, ...]:
        return tuple(_string(data, strings + value) for tag, value in tags if tag == wanted)

    paths = texts(RUNPATH) or texts(RPATH)  # ld.so ignores RPATH where there is a RUNPATH
    runpath = tuple(part for text in paths for part in text.split(":") if part)
    return Elf(machine, texts(NEEDED), next(iter(texts(SONAME)), ""), runpath)


def _tags(data: mmap.mmap, at: int, length: int) -> list[tuple[int, int]]:
    """The entries of the dynamic section up to the one that ends it."""
    one = struct.Struct("<qQ")
    tags = ((*one.unpack_from(data, place),) for place in range(at, at + length - one.size + 1, one.size))
    return list(takewhile(lambda item: item[0] != 0, tags))


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
    """(name, path) of what the loader's cache has, by ldconfig; none without one."""
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
        return f"it is in {os.path.dirname(there[0])}, which LD_LIBRARY_PATH lacks (set by {setter})"
    gone = [path for path in [home, *scripts(base)] if not image.exists(path)]
    if gone:
        return f"{', '.join(gone)} does not exist: the CANN toolkit is not in this image"
    return f"no folder of LD_LIBRARY_PATH or of {home} holds it"
