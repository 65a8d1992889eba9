"""Installs wheels into a layer, those of a group or those that are made here of source distributions; offline.

    install.py --epoch N --wheels DIR GROUP                a group's wheels into /out/opt/venv
    install.py --epoch N --build P --wheels DIR GROUP      the same, from source distributions, for the platform P

GROUP has a line for each requirement, with its hash. Beside stage.py it needs `installer`, which is imported from its
wheel, and the two modules that the host installs with too: wheel_files.py and bytecode.py.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import hook
import stage

sys.path[:0] = map(str, stage.TOOLS.glob("installer-*.whl"))

if TYPE_CHECKING:
    from cannery.assemble.io import bytecode, wheel_files
else:
    import bytecode
    import wheel_files

BUILD_VENV = Path("/tmp/build")
BUILT_WHEELS = Path("/tmp/wheels")
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def main() -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("group", type=Path)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--build", metavar="PLATFORM")
    parser.add_argument("--epoch", type=int, required=True)
    arguments = parser.parse_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    shutil.rmtree(stage.OUT, ignore_errors=True)
    if arguments.build:
        install_built(arguments.group, arguments.wheels, arguments.build)
    else:
        install(arguments.group, arguments.wheels)
    stage.normalise(stage.OUT, arguments.epoch)


def install(group: Path, wheels: Path) -> None:
    """Install a group's wheels below /out, each held against its hash."""
    install_wheels([file for _, file in locked_files(group, wheels)])


def install_built(group: Path, sdists: Path, platform: str) -> None:
    """Make wheels of a group's source distributions with the locked build tools, then install them."""
    make_build_venv()
    wanted = locked_files(group, sdists)
    for requirement, file in wanted:
        project = BUILD_VENV / "src" / requirement
        hook.unpack(file, project)
        hook.run_hook("build_wheel", project, BUILT_WHEELS, f"{BUILD_VENV}/bin/python")
    install_made([requirement for requirement, _ in wanted], platform, BUILT_WHEELS)


def locked_files(group: Path, folder: Path) -> list[tuple[str, Path]]:
    """Return (requirement, file) of each entry of a group; end the stage where no file has the locked hash."""
    files = {stage.sha256(path): path for path in sorted(folder.iterdir())}
    wanted = read_group(group)
    for requirement, digest in wanted:
        if digest not in files:
            sys.exit(f"{requirement}: no file with the locked hash sha256:{digest}")
    return [(requirement, files[digest]) for requirement, digest in wanted]


def read_group(group: Path) -> list[tuple[str, str]]:
    """Return (requirement, sha256) of each entry of a group file."""
    text = group.read_text().replace("\\\n", " ")
    entries = (line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return [(requirement, digest.removeprefix("--hash=sha256:")) for requirement, digest in entries]


def make_build_venv() -> None:
    """Make the virtual environment of the builds: the locked build tools and nothing else."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(BUILD_VENV)
    tools = [wheel for wheel in sorted(stage.TOOLS.glob("*.whl")) if stage.fits(wheel.name, os.uname().machine)]
    wheel_files.install(tools, Path("/"), str(BUILD_VENV), PYTHON)


def install_made(requirements: list[str], platform: str, wheels: Path) -> None:
    """Install what was made below `wheels`, once it is known to be what was asked for, and to fit the target."""
    stage.check_made(wheels, platform)
    made = {project(wheel.name): wheel for wheel in sorted(wheels.glob("*.whl"))}
    found = [made.get(project(requirement.partition("==")[0])) for requirement in requirements]
    for requirement, wheel in zip(requirements, found, strict=True):
        if wheel is None or not is_version(wheel.name, requirement):
            sys.exit(f"{requirement}: its build made {', '.join(w.name for w in made.values()) or 'no wheel'}")
    install_wheels([wheel for wheel in found if wheel])


def project(name: str) -> str:
    """Return the normal name of a project, given as that or as the file name of a wheel."""
    return re.sub(r"[-_.]+", "-", name.partition("-")[0] if name.endswith(".whl") else name).lower()


def is_version(wheel: str, requirement: str) -> bool:
    """Whether the file name of a wheel has the version of `NAME==VERSION`; any version where none is asked for."""
    version = requirement.partition("==")[2]
    return not version or wheel.split("-")[1] == version.replace("-", "_")


def install_wheels(wheels: list[Path]) -> None:
    """Install wheels below /out, with their byte code."""
    stage.OUT.mkdir(exist_ok=True)
    try:
        modules = wheel_files.install(wheels, stage.OUT, str(stage.VENV), PYTHON)
    except wheel_files.WheelError as error:
        sys.exit(str(error))
    compile_modules(modules)


def compile_modules(wheels: list[list[tuple[str, bytes]]]) -> None:
    """Write the byte code of the modules of wheels, or of a tree, given as (path in the image, source), below /out."""
    for path, data in bytecode.compiled(wheels, sys.executable, len(os.sched_getaffinity(0))).items():
        target = stage.OUT / path.lstrip("/")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)


if __name__ == "__main__":
    main()
