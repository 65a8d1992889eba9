"""Wheels from source: a project's own build hooks (PEP 517, PEP 660) and the unpacking of its files."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# What pip did before there was a pyproject.toml.
SETUPTOOLS = "setuptools.build_meta:__legacy__"
CALL = """\
import importlib, sys
hook, target, name, *path = sys.argv[1:]
sys.path[:0] = path
name, _, attribute = name.partition(":")
backend = importlib.import_module(name)
for part in filter(None, attribute.split(".")):
    backend = getattr(backend, part)
print(getattr(backend, hook)(target))
"""


def run_hook(hook: str, project: Path, out: Path, python: str, **variables: str) -> None:
    """Call `build_wheel` or `build_editable` of the project's backend, in the environment of `python`, into `out`.

    Ends the stage with the build's status when it fails.
    """
    out.mkdir(parents=True, exist_ok=True)
    backend, folders = backend_of(project)
    # As `python setup.py` has it: a setup.py may import what stands beside it.
    path = {"PYTHONPATH": f"{project}:{variables.get('PYTHONPATH', '')}".rstrip(":"), "HOME": "/tmp"}
    command = (python, "-c", CALL, hook, str(out), backend, *(str(project / folder) for folder in folders))
    done = subprocess.run(command, cwd=project, env={**os.environ, **variables, **path}, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def run_command(command: list[str], known: dict[str, str], home: Path, variables: dict[str, str]) -> None:
    """Run a command of a component at the top of its tree, with the words of `known` filled in; no shell reads it.

    Ends the stage with the command's status when it fails.
    """
    for name, value in known.items():
        command = [word.replace(name, value) for word in command]
    print(f"+ {shlex.join(command)}", flush=True)
    try:
        done = subprocess.run(command, cwd=home, env={**os.environ, **variables, "HOME": "/tmp"}, check=False)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not in this base, and this build runs it: name its package as a system component")
    if done.returncode != 0:
        sys.exit(done.returncode)


def backend_of(project: Path) -> tuple[str, list[str]]:
    """Return the build backend that pyproject.toml names (setuptools' when it names none), and its `backend-path`.

    By hand: Python 3.10 has no tomllib.
    """
    file = project / "pyproject.toml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    backend = re.search(r"""^build-backend\s*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    path = re.search(r"^backend-path\s*=\s*\[([^\]]*)\]", text, re.MULTILINE)
    folders = re.findall(r"""["']([^"']*)["']""", path[1]) if path else []
    return (backend[1] if backend else SETUPTOOLS), folders


def pretended(package: str, version: str) -> dict[str, str]:
    """Return what tells setuptools-scm the version, since no .git is there to ask: the general name and its own."""
    name = re.sub(r"[-_.]+", "_", package).upper()
    return dict.fromkeys(("SETUPTOOLS_SCM_PRETEND_VERSION", f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{name}"), version)


def unpack(file: Path, home: Path) -> None:
    """Unpack a source into `home`: a tree's tar as it is, a source distribution without its one top folder."""
    place = home.with_name(f"{home.name}-packed")
    shutil.unpack_archive(file, place)
    tops = list(place.iterdir())
    # Only a compressed one is a source distribution.
    top = tops[0] if len(tops) == 1 and tops[0].is_dir() and file.suffix != ".tar" else place
    shutil.copytree(top, home, symlinks=True, dirs_exist_ok=True)  # an image may start there
    shutil.rmtree(place)
    for path in home.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
