"""What is built from a tarball on the target's platform, in the system's environment; offline, standard library only.

    archive.py --epoch N STEP FILE

STEP is a JSON file: `name`, `commands`, `files` (cannery.core.archive_step). The commands run at the top of the tree,
/opt/src/NAME, and install below a folder that stands for /; the named files of it are left below /out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.extend(map(str, (Path(__file__).parent, Path(__file__).parent / "common")))

import hook
import stage

SOURCES = Path("/opt/src")
INSTALLED = Path("/tmp/installed")
# What is told of a path that no step installed.
SHOWN = 20


def main() -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    arguments = parser.parse_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    shutil.rmtree(stage.OUT, ignore_errors=True)
    step = json.loads(arguments.step.read_text())
    build(step, arguments.file)
    keep(step["files"])
    stage.normalise(stage.OUT, arguments.epoch)


def build(step: dict[str, Any], file: Path) -> None:
    """Unpack the tarball and run its commands; the first one that fails ends the stage."""
    home = SOURCES / step["name"]
    hook.unpack(file, home)
    INSTALLED.mkdir(parents=True)
    known = {"{jobs}": str(len(os.sched_getaffinity(0))), "{destdir}": str(INSTALLED)}
    # Messages and sorting as on every other machine.
    variables = {"LC_ALL": "C"}
    for command in step["commands"]:
        hook.run_command(command, known, home, variables)


def keep(files: list[str]) -> None:
    """Copy the named files to the layer, a link as the file that it leads to."""
    stage.OUT.mkdir()
    for path in files:
        source = INSTALLED / path.lstrip("/")
        if not source.is_file():
            there = sorted(f"/{found.relative_to(INSTALLED)}" for found in INSTALLED.rglob("*") if found.is_file())
            sys.exit(f"no step installed {path}; they installed {', '.join(there[:SHOWN]) or 'nothing'}")
        target = stage.OUT / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)


if __name__ == "__main__":
    main()
