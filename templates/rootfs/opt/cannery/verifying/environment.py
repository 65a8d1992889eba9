"""Checks of the environment: the manifest's variables wherever a process starts, and what LD_PRELOAD names."""

import glob
import os
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from verifying.child import run
from verifying.image import Image
from verifying.libraries import entries, folders
from verifying.manifest import scripts, shown
from verifying.outcome import Outcome, judged, passed, warning

# Lists of paths even where they have one entry; another variable is one if its value looks like one.
LISTS = re.compile(r"((LD_)?LIBRARY_|PYTHON|C|PKG_CONFIG_|MAN|CMAKE_PREFIX_)?PATH|LD_PRELOAD")
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELLS_OWN = {"PWD", "OLDPWD", "SHLVL", "_", "ATB_CXX_ABI"}
# Printed between the output of the shell's own start-up files and its environment.
MARK = "cannery-environment-follows"
PRINT = f"printf '\\0{MARK}\\0'; env -0"
PROOFS = {"libjemalloc": "mallctl"}  # what only that library defines


def env_check(image: Image) -> Outcome:
    """The environment is the manifest's in this process, in a login shell and in process 1 (behind the entrypoint)."""
    views = {"this process": dict(image.env)}
    notes = []
    others = {"a login shell (bash -lc)": shell_env(image, "bash", "-lc", PRINT), "process 1": first_env(image)}
    for name, found in others.items():
        if isinstance(found, str):
            notes.append(f"{name} not compared: {found}")
        else:
            views[name] = found
    where: dict[str, list[str]] = defaultdict(list)
    for view, env in views.items():
        for fault in env_faults(image, env):
            where[fault].append(view)
    faults = [f"{fault} (in {', '.join(names)})" for fault, names in where.items()]
    outcome = judged(faults, f"{len(image.manifest['env'])} variables, the same in {', '.join(views)}")
    return replace(outcome, details=(*outcome.details, *notes))


def env_faults(image: Image, env: Mapping[str, str]) -> list[str]:
    """How an environment differs from the manifest's."""
    faults, manifest = [], image.manifest["env"]
    for name, wanted in manifest.items():
        found = env.get(name)
        if found is None:
            faults.append(f"{name} is not set, the manifest says {shown(wanted)}")
        elif LISTS.fullmatch(name) or (":" in wanted and all(item.startswith("/") for item in entries(manifest, name))):
            rest = iter(entries(env, name))  # others may be between the manifest's
            missing = next((item for item in entries(manifest, name) if item not in rest), "")
            faults += [f"{missing} is missing in {name}, or out of order"] if missing else []
        elif found != wanted:
            faults.append(f"{name} is {shown(found)}, the manifest says {shown(wanted)}")
    home, abi = env.get("ATB_HOME_PATH", ""), image.manifest["base"]["atb_abi"]
    chosen = re.search(r"cxx_abi_([01])(/|$)", home)
    if chosen and int(chosen[1]) != abi:
        faults.append(f"ATB_HOME_PATH chooses the C++ ABI {chosen[1]} ({home}), torch needs {abi}")
    return faults


def shell_env(image: Image, *command: str) -> dict[str, str] | str:
    """The environment of a shell that runs PRINT at its end, or why there is none."""
    try:
        child = run(image, command)
    except OSError as error:
        return f"bash: {error.strerror}"
    _, found, text = child.out.partition(f"\0{MARK}\0")
    return parse_env(text) if found and child.code == 0 else f"bash {child.ending}"


def first_env(image: Image) -> dict[str, str] | str:
    """The environment that process 1 started with, or why it cannot be compared."""
    try:
        if os.readlink(image.path("/proc/1/ns/mnt")) != os.readlink(image.path("/proc/self/ns/mnt")):
            return "it is not of this container"
    except OSError:
        pass  # not readable for other users; the file itself decides
    try:
        with open(image.path("/proc/1/environ"), "rb") as file:
            return parse_env(file.read().decode("utf-8", "replace"))
    except OSError as error:
        return f"{error.strerror}"


def set_env_check(image: Image) -> Outcome:
    """The environment has all that CANN's set_env scripts give to an empty shell: docker exec sources none of them."""
    base = image.manifest["base"]
    gone = [path for path in scripts(base) if not image.exists(path)]
    if gone or not base["set_env"]:
        return passed(f"not compared: {', '.join(gone)} does not exist" if gone else "the base names no script")
    given = [f"PATH={USUAL_PATH}", f"ATB_CXX_ABI={base['atb_abi']}"]
    lines = [text.partition(" ") for text in base["set_env"]]
    sourced = [f"set --; . {shlex.quote(image.path(path))} {words}" for path, _, words in lines]
    found = shell_env(image, "env", "-i", *given, "bash", "-c", "\n".join([*sourced, PRINT]))
    if isinstance(found, str):
        return warning(f"CANN's set_env scripts are not compared: {found}")
    env = {name: value for name, value in found.items() if name not in SHELLS_OWN}
    faults = [fault for name in sorted(env) for fault in missing_parts(image, name, env)]
    if not faults:
        return passed(f"{len(env)} variables of {len(lines)} scripts are in the environment")
    return replace(warning(f"CANN's scripts give {len(faults)} more than the environment has"), details=tuple(faults))


def missing_parts(image: Image, name: str, env: Mapping[str, str]) -> list[str]:
    """What of a variable of CANN's scripts is missing in the environment: all of it, or entries of a list.

    Another single value is the choice of the profile, or follows from torch's C++ ABI.
    """
    if name not in image.env:
        return [f"{name} is not set, CANN's scripts give {shown(env[name])}"]
    there = {any_abi(entry) for entry in entries(image.env, name)}
    lost = [entry for entry in entries(env, name) if entry.startswith("/") and any_abi(entry) not in there]
    usual = USUAL_PATH.split(":") if name == "PATH" else []
    is_list = LISTS.fullmatch(name) is not None
    return [f"{entry} of CANN's scripts is missing in {name}" for entry in lost if is_list and entry not in usual]


def any_abi(path: str) -> str:
    """A path below ATB's folder without the C++ ABI in it, which follows torch's."""
    return re.sub(r"/cxx_abi_[01](?=/|$)", "/cxx_abi", path)


def parse_env(text: str) -> dict[str, str]:
    """NAME=value records that end in NUL."""
    return {name: value for name, found, value in (item.partition("=") for item in text.split("\0")) if found}


def preload_check(image: Image) -> Outcome:
    """Each LD_PRELOAD entry exists, is mapped in this process, and is the library of that name.

    For ld.so a wrong path is only a warning (T06).
    """
    names = dict.fromkeys([*entries(image.manifest["env"], "LD_PRELOAD"), *entries(image.env, "LD_PRELOAD")])
    mapped = {line.split(None, 5)[5].strip() for line in image.text("/proc/self/maps").splitlines() if "/" in line}
    faults = []
    for name in names:
        path = name
        if not name.startswith("/"):  # the loader looks for it
            path = image.first(f"{folder}/{name}" for folder in folders(image))
        if not path or not image.exists(path):
            stem = glob.escape(os.path.basename(name).split(".so", maxsplit=1)[0])
            places = (*folders(image), "/usr/local/lib", "/usr/lib/*-linux-gnu")
            found = {file for folder in places for file in image.find(f"{folder}/{stem}.so*")}
            near = sorted(filter(image.exists, found))
            notes = f"found: {', '.join(near)}" if near else "nothing like it was found"
            faults.append(f"{name} does not exist; {notes}")
        elif os.path.realpath(image.path(path)) not in mapped:
            faults.append(f"{name} exists but is not loaded in this process")
        else:  # what only that library defines, as far as that is known
            symbol = next((symbol for stem, symbol in PROOFS.items() if os.path.basename(name).startswith(stem)), "")
            with open(image.path(path), "rb") as file:
                is_good = not symbol or f"\0{symbol}\0".encode() in file.read()
            faults += [] if is_good else [f"{name} is not the library of that name: it does not define {symbol}"]
    return judged(faults, f"{', '.join(names)} loaded" if names else "nothing is to be preloaded")


def programs_check(image: Image) -> Outcome:
    """What components call at run time is on PATH: MindSpeed and Megatron-LM compile on first use (T27)."""
    names = image.manifest["checks"].get("programs", ())
    places = ":".join(image.path(folder) for folder in entries(image.env, "PATH"))
    missing = [name for name in names if not shutil.which(name, path=places)]
    faults = [f"{name} is not on PATH, and is called at run time" for name in missing]
    return judged(faults, f"{', '.join(names)} on PATH" if names else "no program is called at run time")
