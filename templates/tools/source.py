"""What a source's build stage does, beside stage.py: unpack a tree and install it; offline, standard library only.

    source.py --epoch N --platform P STEP FILE            all of it
    source.py --epoch N --platform P --made DIR STEP      install what native.py compiled, left in DIR

STEP is a JSON file: `name`, `package`, `version`, `install` (wheel, editable, tree), `subdirectory`, `env`, `stubs`,
`native` (cannery.core.source_step), `patched` where patches change the tree (overlay.py), `before` for native.py. It
builds with an environment of the build tools alone.
The tree comes to /opt/src/NAME unless a wheel is made of it; the layer is left below /out.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.extend(map(str, (Path(__file__).parent, Path(__file__).parent / "common")))

import hook
import install
import overlay
import stage

SOURCES = Path("/opt/src")
# No build has a driver. The stand-in's own, over which a host's is mounted, fails where a setup.py asks for the chip.
NPU_SMI = Path("/usr/local/bin/npu-smi")
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
    parser.add_argument("--made", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--platform", required=True)
    arguments = parser.parse_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    shutil.rmtree(stage.OUT, ignore_errors=True)
    NPU_SMI.unlink(missing_ok=True)
    step = json.loads(arguments.step.read_text())
    if arguments.made:
        install_native(step, arguments.made, arguments.platform)
    else:
        install_source(step, arguments.file, arguments.platform)
    stage.normalise(stage.OUT, arguments.epoch)


def install_source(step: dict[str, Any], file: Path, platform: str) -> None:
    """Unpack a source and install it as its step says: `wheel`, `editable` or `tree` (PYTHONPATH names it)."""
    home = SOURCES / step["name"]
    hook.unpack(file, home)
    overlay.lay_over(step, home)
    project = home / step["subdirectory"]
    if step["install"] != "tree":
        variables = {**hook.pretended(step["package"], step["version"]), **step["env"]}
        install.make_build_venv()
        write_stubs(step["stubs"])
        python = f"{install.BUILD_VENV}/bin/python"
        made_by = "build_wheel" if step["install"] == "wheel" else "build_editable"
        hook.run_hook(made_by, project, install.BUILT_WHEELS, python, **variables)
        install.install_made([step["package"]], platform, install.BUILT_WHEELS)
    keep(step, home)


def install_native(step: dict[str, Any], made: Path, platform: str) -> None:
    """Install the wheel that was compiled on the target's platform, and the tree that an editable one points to."""
    home = SOURCES / step["name"]
    if step["install"] == "editable":
        shutil.copytree(made / "tree", home, symlinks=True)
    install.install_made([step["package"]], platform, made / "wheels")
    keep(step, home)


def keep(step: dict[str, Any], home: Path) -> None:
    """Leave in the layer what the way of installing wants beside the distribution."""
    if step["install"] == "editable":
        mark_editable(step["package"], home / step["subdirectory"])
    if step["install"] == "wheel":
        overlay.check_installed(step, site_packages())
    else:
        keep_tree(home)


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
