"""What is compiled for the target, on the target's platform and in its own environment; offline, standard library only.

    native.py --epoch N --platform P STEP FILE

STEP and FILE are those of source.py. It builds with /opt/venv, where torch, torch_npu and all else that it compiles
against stand, and with those build tools on its path whose wheels this machine can read. What was made is left below
/out, for a stage on the build host that installs it: `wheels/`, and `tree/` of an editable source.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

sys.path.extend(map(str, (Path(__file__).parent, Path(__file__).parent / "common")))

import hook
import overlay
import stage

TOOLS_PATH = Path("/tmp/tools")
SOURCES = Path("/opt/src")
# Not run but compiled in: extension modules of one process share its types only at one version, which is the image's
# where it has one.
COMPILED_IN = ("pybind11",)
# Bytes of memory that a compiler takes on torch's headers; where this host's number of jobs is, and its memory.
A_JOB = 2 << 30
JOBS, MEMORY, LIMIT = Path("/run/secrets/jobs"), Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


def main() -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--platform", required=True)
    arguments = parser.parse_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    shutil.rmtree(stage.OUT, ignore_errors=True)
    make_source(json.loads(arguments.step.read_text()), arguments.file)
    stage.check_made(stage.OUT / "wheels", arguments.platform)
    stage.normalise(stage.OUT, arguments.epoch)


def make_source(step: dict[str, Any], file: Path) -> None:
    """Compile a source at its place, /opt/src/NAME, which an editable wheel names."""
    home = SOURCES / step["name"]
    hook.unpack(file, home)
    overlay.lay_over(step, home)
    variables = {**native_variables(), **hook.pretended(step["package"], step["version"]), **step["env"]}
    is_editable = step["install"] == "editable"
    name = "build_editable" if is_editable else "build_wheel"
    known = {"{python}": f"{stage.VENV}/bin/python", "{jobs}": variables["MAX_JOBS"]}
    for command in step.get("before", ()):
        hook.run_command(command, known, home, variables)
    hook.run_hook(name, home / step["subdirectory"], stage.OUT / "wheels", f"{stage.VENV}/bin/python", **variables)
    if is_editable:
        shutil.copytree(home, stage.OUT / "tree", symlinks=True)


def native_variables() -> dict[str, str]:
    """Unpack the build tools, and return what a build against CANN needs beside the image's own environment.

    There is no driver in a build: libascend_hal.so is a stub in the toolkit's devlib, which must not come to the
    image's own environment. torch would load torch_npu by itself, and with it the driver.
    """
    unpack_tools()
    devlib = f"{os.environ.get('ASCEND_HOME_PATH', '')}/{os.uname().machine}-linux/devlib"
    path = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        "LD_LIBRARY_PATH": f"{path}:{devlib}" if path else devlib,
        "PYTHONPATH": f"{TOOLS_PATH}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "MAX_JOBS": str(jobs()),
    }


def jobs() -> int:
    """Return how many compilers may run at once: MAX_JOBS of the host, else one a core that has memory for it."""
    if JOBS.is_file() and (text := JOBS.read_text().strip()):
        return int(text)
    free = re.search(r"^MemAvailable: +(\d+) kB$", MEMORY.read_text(), re.MULTILINE)
    sizes = [int(free[1]) << 10] if free else []
    sizes += [int(text)] if LIMIT.is_file() and (text := LIMIT.read_text().strip()).isdecimal() else []
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, *(size // A_JOB for size in sizes))) if sizes else cores


def unpack_tools() -> None:
    """Unpack the build tools' wheels onto a path of their own: pure ones, and those for this machine."""
    for wheel in sorted(stage.TOOLS.glob("*.whl")):
        name = wheel.name.partition("-")[0]
        if name in COMPILED_IN and any(stage.VENV.glob(f"lib/python3.*/site-packages/{name}-*")):
            continue
        if not stage.fits(wheel.name, os.uname().machine):
            print(f"{wheel.name} is not for {os.uname().machine}: this build goes without it")
            continue
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(TOOLS_PATH)


if __name__ == "__main__":
    main()
