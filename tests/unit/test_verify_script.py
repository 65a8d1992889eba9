"""The verify script as it lies in an image: it finds its modules however it is started, and leaves nothing behind."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from data.verify_tree import REPOSITORY, Tree

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = REPOSITORY / "templates/rootfs/opt/cannery"
OWN = {"verify", "verifying", "patched"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A made-up image that holds the script."""
    (tmp_path / "image").mkdir()
    tree = Tree(tmp_path / "image")
    shutil.rmtree(tree.root / "opt/cannery")
    shutil.copytree(FOLDER, tree.root / "opt/cannery", ignore=shutil.ignore_patterns("__pycache__"))
    tree.save()
    return tree


def names(tree: Tree) -> list[str]:
    return sorted(str(path) for path in (tree.root / "opt/cannery").rglob("*"))


@pytest.mark.parametrize("how", ["", "-I", "-P", "-E", "safe path"])
def test_it_finds_its_modules_and_leaves_nothing_behind(tree: Tree, tmp_path: Path, how: str) -> None:
    strange = tmp_path / "strange"
    (strange / "verifying").mkdir(parents=True)
    (strange / "verifying/__init__.py").write_text("raise SystemExit('the wrong package')")
    shutil.copytree(strange / "verifying", strange / "verify")
    env = {**os.environ, "PYTHONPATH": str(strange)} | ({"PYTHONSAFEPATH": "1"} if how == "safe path" else {})
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    before = names(tree)
    script, options = str(tree.root / "opt/cannery/verify.py"), ["--root", str(tree.root), "--only", "static.shadow"]
    command = [sys.executable, *([how] if how.startswith("-") else []), script, *options, "--only", "import.demo"]
    done = subprocess.run(command, cwd=strange, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "✅ import.demo" in done.stdout
    assert names(tree) == before


def test_a_childs_path_does_not_hold_the_scripts_folder(tree: Tree) -> None:
    tree.write(f"{tree.site_name}/demo/__init__.py", "import sys\n__version__ = ' '.join(sys.path)\n")
    found = tree.check("import.demo").message
    assert tree.site_name in found
    assert "opt/cannery" not in found
    tree.write(f"{tree.site_name}/demo/__init__.py", "import verifying\n")
    assert tree.check("import.demo").message == "ModuleNotFoundError: No module named 'verifying'"


def test_standard_library_only() -> None:
    files = [FOLDER / "verify.py", FOLDER / "patched.py", *(FOLDER / "verifying").rglob("*.py")]
    imported = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
    assert imported - sys.stdlib_module_names == {"verifying", "patched"}
    assert not OWN & sys.stdlib_module_names
    names = {path.name for path in FOLDER.iterdir()} - {"__pycache__"}
    assert names == {"verify.py", "verifying", "training", "patched.py"}


def test_a_module_that_others_cannot_read_is_told(tree: Tree) -> None:
    (tree.root / "opt/cannery/verifying/libraries.py").chmod(0o600)
    found = tree.check("static.readable")
    assert "/opt/cannery/verifying/libraries.py is closed to other users (mode 0600)" in [found.message, *found.details]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict", "utf-8"])
def test_an_output_that_cannot_take_the_signs_gets_their_numbers(tree: Tree, encoding: str) -> None:
    (tree.site / "demo/part.py").unlink()
    tree.write(f"{tree.site_name}/naïve.pth")
    script, options = str(tree.root / "opt/cannery/verify.py"), ["--root", str(tree.root), "--only", "static.files"]
    command = [sys.executable, script, *options, "--only", "static.programs"]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    out = done.stdout.decode(encoding.partition(":")[0])
    assert (done.returncode, done.stderr) == (1, b""), out
    failed, good = ("❌", "✅") if encoding == "utf-8" else ("\\u274c", "\\u2705")
    assert f"{failed} static.files: 2 faults" in out
    assert f"{good} static.programs:" in out
    assert ("na\\xefve.pth" if encoding.startswith("ascii") else "naïve.pth") in out
    done = subprocess.run([*command, "--json"], env=env, capture_output=True, check=False)
    assert "naïve.pth" in json.loads(done.stdout)["checks"][0]["details"][1]


def test_a_stream_has_each_check_of_the_report_on_stderr(tree: Tree) -> None:
    command = [sys.executable, str(tree.root / "opt/cannery/verify.py"), "--root", str(tree.root), "--json"]
    command += ["--only", "static.files", "--only", "static.programs"]
    streamed = subprocess.run([*command, "--stream"], capture_output=True, text=True, check=True)
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in streamed.stderr.splitlines()] == json.loads(streamed.stdout)["checks"]
    assert len(streamed.stderr.splitlines()) == 2
    assert (plain.stdout, plain.stderr) == (streamed.stdout, "")
