"""What a build stage does, run by the base's own Python (3.10 or newer), offline.

    stage.py venv  --epoch N [DIR]             an empty /opt/venv, and the folder that containers start in
    stage.py links --epoch N PATH=TARGET...    symbolic links below /out
    stage.py files --epoch N ROOT              copies ROOT's files to /out

Each leaves its layer below /out with owner 0:0 and mtime N on every file and folder, so that the layer's digest is a
function of its inputs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import venv
from pathlib import Path

OUT = Path("/out")
VENV = Path("/opt/venv")
TOOLS = Path("/run/cannery/wheels/_tools")


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("venv", "links", "files"))
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("--epoch", type=int, required=True)
    arguments = parser.parse_intermixed_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    if arguments.what != "venv":
        shutil.rmtree(OUT, ignore_errors=True)
    if arguments.what == "venv":
        make_venv()
        for folder in arguments.inputs:
            (OUT / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif arguments.what == "links":
        make_links(arguments.inputs)
    else:
        shutil.copytree(arguments.inputs[0], OUT, symlinks=True)
        for path in OUT.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
    normalise(OUT, arguments.epoch)


def make_venv() -> None:
    """Make /opt/venv with this Python, and a copy of it for the layer."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(VENV)
    (OUT / "opt").mkdir(parents=True)
    shutil.copytree(VENV, OUT / "opt/venv", symlinks=True)


def check_made(wheels: Path, platform: str) -> None:
    """End the stage when a wheel below `wheels` was compiled for another machine than the target's."""
    machine = platform.partition("-")[0]
    wrong = [wheel.name for wheel in sorted(wheels.glob("*.whl")) if not fits(wheel.name, machine)]
    if wrong:
        here = os.uname().machine
        sys.exit(
            f"compiled on {here}, and so of no use on the target, which is {machine}: {', '.join(wrong)}\n"
            f"Build on a machine that is {machine}, or exclude the package in the profile where the stack can do "
            "without it; a component that compiles is of `kind: native`"
        )


def fits(wheel: str, machine: str) -> bool:
    """Whether the platform tags of a wheel's name hold `machine`, or `any`."""
    platforms = wheel.removesuffix(".whl").rpartition("-")[2].split(".")
    return any(name == "any" or name.endswith(f"_{machine}") for name in platforms)


def make_links(pairs: list[str]) -> None:
    """Make symbolic links, given as PATH=TARGET, below /out."""
    for pair in pairs:
        path, target = pair.split("=", 1)
        link = OUT / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def normalise(root: Path, epoch: int) -> None:
    """Give everything below `root`, and `root`, owner 0:0 and mtime `epoch`."""
    for folder, folders, files in os.walk(root, topdown=False):
        for name in (*files, *folders):
            path = os.path.join(folder, name)  # noqa: PTH118 - 60,000 files: Path objects cost seconds
            os.chown(path, 0, 0, follow_symlinks=False)
            os.utime(path, (epoch, epoch), follow_symlinks=False)
    os.utime(root, (epoch, epoch))


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


if __name__ == "__main__":
    main()
