"""What a source's build stage does, beside stage.py: unpack a tree and install it; offline, standard library only.

    source.py --epoch N --platform P STEP FILE              all of it
    source.py --epoch N --platform P --compile STEP FILE    on the target's platform: leaves wheels/, and tree/ of an
                                                            editable source
    source.py --epoch N --platform P --made DIR STEP        install what --compile left, in DIR

STEP is a JSON file: `name`, `package`, `version`, `install` (wheel, editable, tree), `subdirectory`, `env`, `stubs`,
`native` (cannery.plan.sources), `before`, commands of what compiles, and `patched`, files that were patched before the
build: `path`, `before` and `after` (hex SHA-256, null for a file that is not there), `executable`, and `installed`: its
place below site-packages where a wheel brings it, or null. The content of each is in /run/cannery/patched, named by its
hash. It builds with an environment of the build tools alone. What compiles against CANN, torch and torch_npu builds
with /opt/venv, where these are, and with those build tools on its path whose wheels this machine can read.
The tree comes to /opt/src/NAME unless a wheel is made of it; the layer is left below /out.
"""

from __future__ import annotations

import argparse
import csv
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
import install
import stage

SOURCES = Path("/opt/src")
# No build has a driver. The stand-in's own, over which a host's is mounted, fails where a setup.py asks for the chip.
NPU_SMI = Path("/usr/local/bin/npu-smi")
PATCHED = Path("/run/cannery/patched")
TOOLS_PATH = Path("/tmp/tools")
# Not run but compiled in: extension modules of one process share its types only at one version, which is the image's
# where it has one.
COMPILED_IN = ("pybind11",)
# Bytes of memory that a compiler takes on torch's headers; where this host's number of jobs is, and its memory.
A_JOB = 2 << 30
JOBS, MEMORY, LIMIT = Path("/run/secrets/jobs"), Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
# What a build leaves in its tree.
LEFT = ("build", "**/*.egg-info", "**/__pycache__")
# Modules that a setup.py imports only to learn what they are not: a torch without CUDA and ROCm. An empty target
# (VLLM_TARGET_DEVICE=empty) compiles nothing, and the real one would be 200 MB in the stage. vLLM's Rust part is
# optional; the real setuptools_rust would mark the wheel as one for the build host.
STUBS = {
    "torch": {
        "torch/__init__.py": "from torch import version\n",
        "torch/version.py": "cuda = hip = None\n",
        "torch/utils/__init__.py": "",
        "torch/utils/cpp_extension.py": "CUDA_HOME = ROCM_HOME = None\n",
    },
    "setuptools_rust": {
        "setuptools_rust/__init__.py": "class Binding:\n    Exec = None\n\n\nRustExtension = dict\n",
        "setuptools_rust/build.py": "from setuptools import Command as build_rust\n",
    },
}


def main() -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", type=Path)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--made", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--platform", required=True)
    arguments = parser.parse_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    shutil.rmtree(stage.OUT, ignore_errors=True)
    step = json.loads(arguments.step.read_text())
    if arguments.compile:
        compile_source(step, arguments.file)
        stage.check_made(stage.OUT / "wheels", arguments.platform)
    else:
        NPU_SMI.unlink(missing_ok=True)
        make = install_native if arguments.made else install_source
        make(step, arguments.made or arguments.file, arguments.platform)
    stage.normalise(stage.OUT, arguments.epoch)


def install_source(step: dict[str, Any], file: Path, platform: str) -> None:
    """Unpack a source and install it as its step says: `wheel`, `editable` or `tree` (PYTHONPATH names it)."""
    home = unpacked(step, file)
    if step["install"] != "tree":
        install.make_build_venv()
        write_stubs(step["stubs"])
        build(step, install.BUILT_WHEELS, f"{install.BUILD_VENV}/bin/python", {})
        install.install_made([step["package"]], platform, install.BUILT_WHEELS)
    keep(step, home)


def compile_source(step: dict[str, Any], file: Path) -> None:
    """Compile a source at its place, which an editable wheel names."""
    home, variables = unpacked(step, file), native_variables()
    known = {"{python}": f"{stage.VENV}/bin/python", "{jobs}": variables["MAX_JOBS"]}
    for command in step.get("before", ()):
        hook.run_command(command, known, home, variables_of(step, variables))
    build(step, stage.OUT / "wheels", f"{stage.VENV}/bin/python", variables)
    if step["install"] == "editable":
        shutil.copytree(home, stage.OUT / "tree", symlinks=True)


def install_native(step: dict[str, Any], made: Path, platform: str) -> None:
    """Install the wheel that was compiled on the target's platform, and the tree that an editable one points to."""
    home = SOURCES / step["name"]
    if step["install"] == "editable":
        shutil.copytree(made / "tree", home, symlinks=True)
    install.install_made([step["package"]], platform, made / "wheels")
    keep(step, home)


def unpacked(step: dict[str, Any], file: Path) -> Path:
    """Unpack a source at its place, with the files that were patched. Ends the stage where they are of another tree."""
    home: Path = SOURCES / step["name"]
    hook.unpack(file, home)
    for file_row in step.get("patched", ()):
        path = home / file_row["path"]
        if digest(path) != file_row["before"]:
            sys.exit(f"{step['name']}: {file_row['path']} is not the file that was patched: render the folder anew")
        if file_row["after"] is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((PATCHED / file_row["after"]).read_bytes())
        path.chmod(0o755 if file_row["executable"] else 0o644)
    return home


def digest(path: Path) -> str | None:
    """Return the hex SHA-256 of a file; None when there is none."""
    return stage.sha256(path) if path.is_file() and not path.is_symlink() else None


def build(step: dict[str, Any], wheels: Path, python: str, variables: dict[str, str]) -> None:
    """Have the source's own build make a wheel, or an editable one."""
    made_by = "build_editable" if step["install"] == "editable" else "build_wheel"
    project = SOURCES / step["name"] / step["subdirectory"]
    hook.run_hook(made_by, project, wheels, python, **variables_of(step, variables))


def variables_of(step: dict[str, Any], more: dict[str, str]) -> dict[str, str]:
    """Return the variables that a source's build gets."""
    return {**more, **hook.pretended(step["package"], step["version"]), **step["env"]}


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


def keep(step: dict[str, Any], home: Path) -> None:
    """Leave in the layer what the way of installing wants beside the distribution."""
    if step["install"] == "editable":
        mark_editable(step["package"], home / step["subdirectory"])
    if step["install"] == "wheel":
        check_installed(step, site_packages())
    else:
        keep_tree(home)


def check_installed(step: dict[str, Any], site: Path) -> None:
    """End the stage unless each patched file that a wheel brings is in `site` (site-packages) as patched."""
    for file in step.get("patched", ()):
        if file["installed"] is not None and digest(site / file["installed"]) != file["after"]:
            sys.exit(f"{step['name']}: {file['installed']} is not as patched once it is installed")


def keep_tree(home: Path) -> None:
    """Copy the tree to its place in the layer, without what the build left in it, and with .pyc files."""
    for pattern in LEFT:
        for path in sorted(home.glob(pattern)):
            shutil.rmtree(path, ignore_errors=True)
    (stage.OUT / "opt").mkdir(parents=True, exist_ok=True)
    shutil.copytree(home, stage.OUT / home.relative_to("/"), symlinks=True)
    install.compile_modules([[(str(path), path.read_bytes()) for path in sorted(home.rglob("*.py")) if path.is_file()]])


def write_stubs(names: list[str]) -> None:
    """Write the modules of STUBS that a build imports into the build venv."""
    (site,) = install.BUILD_VENV.glob("lib/python3.*/site-packages")
    for name in names:
        for path, text in STUBS[name].items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)


def site_packages() -> Path:
    """Return where the layer's distributions stand."""
    (site,) = (stage.OUT / stage.VENV.relative_to("/")).glob("lib/python3.*/site-packages")
    return site


def mark_editable(package: str, project: Path) -> None:
    """Say in the distribution's own metadata that it is editable and where, as `pip install -e` does (PEP 610)."""
    stem = package.replace("-", "_").replace(".", "_").lower()
    site = site_packages()
    (info,) = (p for p in site.glob("*.dist-info") if p.name.lower().startswith(f"{stem}-"))
    text = json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
    name = f"{info.name}/direct_url.json"
    (site / name).write_text(text)
    record = info / "RECORD"
    rows = [row for row in csv.reader(record.read_text().splitlines()) if row and row[0] != name]
    rows.append([name, "", ""])
    record.write_text("".join(",".join(row) + "\n" for row in sorted(rows)))


if __name__ == "__main__":
    main()
