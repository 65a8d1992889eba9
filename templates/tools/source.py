"""What a source's build stage does, beside stage.py: unpack a tree and install it; offline, standard library only.

    source.py --epoch N --platform P STEP TAR

STEP is a JSON file: `name`, `package`, `version`, `install` (wheel, editable, tree), `subdirectory`, `env`, `stubs`,
`native` (cannery.core.source_step). A native step builds with /opt/venv, where torch and all else
that it compiles against is installed; any other builds with an environment of the build tools alone.
The tree comes to /opt/src/NAME unless a wheel is made of it; the layer is left below /out.
"""

from __future__ import annotations

import argparse
import compileall
import csv
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from stage import (
    BUILD_VENV,
    BUILT_WHEELS,
    OUT,
    TOOLS,
    VENV,
    build_wheel,
    install_made,
    make_build_venv,
    normalise,
    run_uv,
)

SOURCES = Path("/opt/src")
# What a build leaves in its tree.
LEFT = ("build", "**/*.egg-info", "**/__pycache__")
# Modules that a setup.py imports only to learn what they are not: a torch without CUDA and ROCm. An empty target
# (VLLM_TARGET_DEVICE=empty) compiles nothing, and the real one would be 200 MB in the stage.
STUBS = {
    "torch": {
        "torch/__init__.py": "from torch import version\n",
        "torch/version.py": "cuda = hip = None\n",
        "torch/utils/__init__.py": "",
        "torch/utils/cpp_extension.py": "CUDA_HOME = ROCM_HOME = None\n",
    }
}


def main() -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", type=Path)
    parser.add_argument("tar", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--platform", required=True)
    arguments = parser.parse_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    shutil.rmtree(OUT, ignore_errors=True)
    install_source(json.loads(arguments.step.read_text()), arguments.tar, arguments.platform)
    normalise(OUT, arguments.epoch)


def install_source(step: dict[str, Any], tar: Path, platform: str) -> None:
    """Unpack a source and install it as its step says: `wheel`, `editable` or `tree` (PYTHONPATH names it).

    `step` has name, package, version, install, subdirectory, env and stubs (cannery.core.source_step).
    """
    home = SOURCES / step["name"]
    unpack(tar, home)
    project = home / step["subdirectory"]
    if step["install"] != "tree":
        variables = {**pretended(step["package"], step["version"]), **step["env"]}
        python = native_python(variables) if step["native"] else pure_python(step["stubs"])
        if step["install"] == "wheel":
            build_wheel(project, python, **variables)
        else:
            build_editable(project, python, **variables)
        install_made([step["package"]], platform)
    if step["install"] == "editable":
        mark_editable(step["package"], project)
    if step["install"] != "wheel":
        keep_tree(home)


def pure_python(stubs: list[str]) -> str:
    """Make the environment of the build tools, with the stubs; return its Python."""
    make_build_venv()
    write_stubs(stubs)
    return f"{BUILD_VENV}/bin/python"


def native_python(variables: dict[str, str]) -> str:
    """Put the build tools on the path of /opt/venv's Python, and what a build against CANN needs into `variables`.

    There is no driver in a build: libascend_hal.so is a stub in the toolkit's devlib, which must not come to the
    image's own environment. torch would load torch_npu by itself, and with it the driver.
    """
    tools = Path("/tmp/tools")
    wheels = [str(p) for p in sorted(TOOLS.glob("*.whl")) if not p.name.startswith("uv-")]
    run_uv("pip", "install", "--python", f"{VENV}/bin/python", "--target", str(tools), "--no-deps", *wheels)
    devlib = f"{os.environ.get('ASCEND_HOME_PATH', '')}/{os.uname().machine}-linux/devlib"
    path = os.environ.get("LD_LIBRARY_PATH", "")
    variables["LD_LIBRARY_PATH"] = f"{path}:{devlib}" if path else devlib
    variables["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{tools}".lstrip(":")
    variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    variables["MAX_JOBS"] = str(len(os.sched_getaffinity(0)))
    return f"{VENV}/bin/python"


def pretended(package: str, version: str) -> dict[str, str]:
    """Return what tells setuptools-scm the version, since no .git is there to ask: the general name and its own."""
    name = re.sub(r"[-_.]+", "_", package).upper()
    return dict.fromkeys(("SETUPTOOLS_SCM_PRETEND_VERSION", f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}"), version)


def keep_tree(home: Path) -> None:
    """Copy the tree to its place in the layer, without what the build left in it, and with .pyc files."""
    for pattern in LEFT:
        for path in sorted(home.glob(pattern)):
            shutil.rmtree(path, ignore_errors=True)
    # Checked, not unchecked hashes: developers edit these trees in the container.
    compileall.compile_dir(home, quiet=2, workers=0, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    (OUT / "opt").mkdir(parents=True, exist_ok=True)
    shutil.copytree(home, OUT / home.relative_to("/"), symlinks=True)


def unpack(tar: Path, home: Path) -> None:
    """Unpack a source into `home`: a tree's tar as it is, a source distribution without its one top folder."""
    home.mkdir(parents=True)
    with tarfile.open(tar) as archive:
        members = archive.getmembers()
        tops = {member.name.split("/")[0] for member in members}
        single = len(tops) == 1 and all(m.isdir() or "/" in m.name for m in members) and tar.name.endswith(".gz")
        for member in members:
            if single:
                member.name = member.name.partition("/")[2]
            if member.name:
                archive.extract(member, home)
    for path in home.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def write_stubs(names: list[str]) -> None:
    """Write the modules of STUBS that a build imports into the build venv."""
    (site,) = BUILD_VENV.glob("lib/python3.*/site-packages")
    for name in names:
        for path, text in STUBS[name].items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)


def build_editable(project: Path, python: str, **env: str) -> None:
    """Make an editable wheel of `project`, which points to it, below BUILT_WHEELS, by the backend's own hook."""
    BUILT_WHEELS.mkdir(parents=True)
    hook = (
        "import importlib, sys\n"
        "name, _, attribute = sys.argv[1].partition(':')\n"
        "backend = importlib.import_module(name)\n"
        "for part in filter(None, attribute.split('.')):\n"
        "    backend = getattr(backend, part)\n"
        "backend.build_editable(sys.argv[2])\n"
    )
    # As `python setup.py` has it: a setup.py may import what stands beside it.
    path = {"PYTHONPATH": f"{project}:{env.get('PYTHONPATH', '')}".rstrip(":"), "HOME": "/tmp"}
    command = (python, "-c", hook, backend_of(project), str(BUILT_WHEELS))
    done = subprocess.run(command, cwd=project, env={**os.environ, **env, **path}, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def backend_of(project: Path) -> str:
    """Return the build backend that pyproject.toml names; setuptools' when it names none."""
    file = project / "pyproject.toml"
    found = (
        re.search(r"""^build-backend\s*=\s*["']([^"']+)["']""", file.read_text(), re.MULTILINE)
        if file.is_file()
        else None
    )
    return found[1] if found else "setuptools.build_meta:__legacy__"


def mark_editable(package: str, project: Path) -> None:
    """Say in the distribution's own metadata that it is editable and where, as `pip install -e` does (PEP 610)."""
    stem = package.replace("-", "_").replace(".", "_").lower()
    (site,) = (OUT / VENV.relative_to("/")).glob("lib/python3.*/site-packages")
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
