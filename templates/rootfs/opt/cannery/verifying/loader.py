"""How the dynamic loader finds a library by its name, here and on a host with a driver."""

import glob
import os
import re
from collections.abc import Iterable, Mapping

from verifying.elf import Elf, cached_libraries
from verifying.image import Image

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
        cache = cached_libraries(image.path("/etc/ld.so.cache"))
        return names | {name for name, path in cache.items() if image.exists(path)}

    return image.remember("system libraries", look)


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
    gone = [path for path in [home, *base["set_env"]] if not image.exists(path)]
    if gone:
        return f"{', '.join(gone)} does not exist: the CANN toolkit is not in this image"
    lost = [folder for folder in wanted if folder not in entries(image.env, "LD_LIBRARY_PATH")]
    if lost:
        return f"LD_LIBRARY_PATH lacks {', '.join(lost)} of the manifest"
    return f"no folder of LD_LIBRARY_PATH or of {home} holds it"
