"""What the image's own script says of patches, to people and at the start of a process, and the plugin's stand-in."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from data.verify_tree import REPOSITORY

import patched

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

SCRIPT = REPOSITORY / "templates/rootfs/opt/cannery/patched.py"
PLUGIN = REPOSITORY / "templates/tools/plugin/cannery_patches.py"
FUNCTION = "def fit(self):\n    return 'patched'\n"
TEXTS = {  # file → before, after
    "verl/workers.py": ("def fit(self):\n    return 'old'\n", FUNCTION),
    "recipe/dapo.py": ("x = 1\n", "x = 2\n"),
    "verl/added.py": (None, "y = 1\n"),
    "verl/removed.py": ("z = 1\n", None),
}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Trees:
    """A folder with the tree of verl, patched, and a manifest that says so."""

    def __init__(self, root: Path) -> None:
        self.root, self.tree = root, root / "src/verl-src"
        self.manifest: dict[str, Any] = {
            "sources": [{"component": "verl-src", "path": str(self.tree)}, {"component": "vllm", "path": None}],
            "patches": [self._patch(name) for name in TEXTS],
            "patches_left_out": [{"name": "qwen", "component": "transformers", "reason": "a release"}],
        }
        self.lay(self.tree)
        self.save()

    def _patch(self, name: str) -> dict[str, Any]:
        before, after = TEXTS[name]
        module = name.removesuffix(".py").replace("/", ".")
        file: dict[str, Any] = {"path": str(self.tree / name), "module": module}
        file |= {"before": before and sha(before), "after": after and f"sha256:{sha(after)}"}
        return {"name": module.split(".")[1], "digest": sha("p"), "component": "verl-src", "files": [file]}

    def lay(self, folder: Path, state: int = 1) -> Path:
        """Writes a tree as it is before (0) or after (1) the patches."""
        for name, texts in {**TEXTS, "verl/__init__.py": ("", "")}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if texts[state] is not None:
                path.write_text(texts[state])
        return folder

    def save(self) -> str:
        path = self.root / "manifest.json"
        path.write_text(json.dumps(self.manifest))
        return str(path)

    def said(self, env: dict[str, str] | None = None) -> list[str]:
        """What report prints."""
        stream = io.StringIO()
        patched.report(self.save(), env or {}, stream)
        return stream.getvalue().splitlines()


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


def test_nothing_is_said_when_all_is_well(trees: Trees) -> None:
    assert trees.said() == []


def test_what_a_tree_lacks_is_a_line_a_file(trees: Trees) -> None:
    (trees.tree / "verl/workers.py").write_text(TEXTS["verl/workers.py"][0] or "")
    first = f"cannery: workers (verl-src): {trees.tree}/verl/workers.py is not patched"
    assert trees.said() == [first]
    (trees.tree / "recipe/dapo.py").write_text("x = 3\n")
    place = f"{trees.tree}/recipe/dapo.py"
    assert trees.said() == [
        first,
        f"cannery: dapo (verl-src): {place} has neither the patched nor the original content",
    ]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("recipe/dapo.py", "x = 1\n", "dapo (verl-src): {} is not patched"),
        ("recipe/dapo.py", "x = 3\n", "dapo (verl-src): {} has neither the patched nor the original content"),
        ("recipe/dapo.py", None, "dapo (verl-src): {} does not exist"),
        ("verl/added.py", None, "added (verl-src): {} does not exist"),
        ("verl/removed.py", "z = 1\n", "removed (verl-src): {} still exists, the patch removes it"),
        (
            "verl/workers.py",
            f"{FUNCTION}\nx = 1\n",
            "workers (verl-src): {} has neither the patched nor the original content",
        ),
    ],
)
def test_each_way_in_which_a_file_departs(trees: Trees, name: str, text: str | None, says: str) -> None:
    path = trees.tree / name
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    assert trees.said() == [f"cannery: {says.format(path)}"]


def test_a_folder_in_the_place_of_a_file_is_told(trees: Trees) -> None:
    (trees.tree / "recipe/dapo.py").unlink()
    (trees.tree / "recipe/dapo.py").mkdir()
    (line,) = trees.said()
    assert line.endswith("dapo.py cannot be read (Is a directory)")


# Ranks.


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "0"}, True),
        ({"RANK": ""}, True),
        ({"RANK": "odd"}, True),
        ({"RANK": "1"}, False),
        ({"RANK": "8", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "3"}, False),
        ({"SLURM_PROCID": "10"}, False),
    ],
)
def test_only_the_first_rank_speaks(trees: Trees, env: dict[str, str], says: bool) -> None:
    trees.lay(trees.tree, 0)
    assert bool(trees.said(env)) is says


# No manifest, or one of another form.


def test_without_a_manifest_one_line_says_so(tmp_path: Path) -> None:
    stream = io.StringIO()
    patched.report(str(tmp_path / "none.json"), {}, stream)
    why = "cannot be read (No such file or directory): whether the patches are in force is not known"
    assert stream.getvalue() == f"cannery: {tmp_path}/none.json {why}\n"
    patched.report(str(tmp_path / "none.json"), {"RANK": "1"}, stream)
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"patches": 1}', '{"patches": [{}]}', '{"patches": [1]}'])
def test_a_broken_manifest_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    stream = io.StringIO()
    patched.report(str(tmp_path / "manifest.json"), {}, stream)
    assert stream.getvalue().startswith("cannery: the patches could not be looked at (")
    assert stream.getvalue().count("\n") == 1


def test_a_closed_stream_is_no_error(trees: Trees) -> None:
    trees.lay(trees.tree, 0)
    stream = io.StringIO()
    stream.close()
    patched.report(trees.save(), {}, stream)


# The plugin's stand-in.


def plugin(script: object) -> ModuleType:
    """The module as a new process has it, with another place of the script."""
    spec = importlib.util.spec_from_file_location("cannery_patches", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["PATCHED"] = str(script)
    return module


def test_the_plugins_functions_report_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "patched.py"
    script.write_text("import sys\ndef report():\n    print('reported', __name__, file=sys.stderr)\n")
    module = plugin(script)
    module.after_patch_check()
    module.apply_patch()
    module.after_patch_check()
    assert capsys.readouterr() == ("", "reported cannery_patched\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["patched.py"], "no .pyc"


def test_without_the_script_the_plugin_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("1 +\n")
    for name in ("none.py", "broken.py"):
        plugin(tmp_path / name).apply_patch()
    assert capsys.readouterr() == ("", "")


def states(folder: Path) -> dict[str, tuple[int, int, str]]:
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime_ns, sha(path.read_text()) if path.is_file() else "")
        for path in sorted(folder.rglob("*"))
    }


def test_sixteen_processes_at_once_change_no_file_and_one_speaks(trees: Trees) -> None:
    """As a plugin does it: verl is imported, and from there the module that was laid into the plugin's tree."""
    (trees.tree / "recipe/dapo.py").unlink()
    text = PLUGIN.read_text().replace("/opt/cannery/patched.py", str(trees.root / "cannery/patched.py"))
    script = SCRIPT.read_text().replace("/opt/cannery/manifest.json", trees.save())
    for name, content in {"cannery/patched.py": script, "plugin/verl_npu/cannery_patches.py": text}.items():
        (trees.root / name).parent.mkdir(parents=True)
        (trees.root / name).write_text(content)
    (trees.tree / "verl/__init__.py").write_text("from verl_npu.cannery_patches import apply_patch\napply_patch()\n")
    for folder in (path for path in trees.root.rglob("*") if path.is_dir()):
        folder.chmod(0o555)
    before = states(trees.root)
    path = f"{trees.tree}:{trees.root}/plugin"
    env = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", "import verl, verl.workers; print(verl.workers.fit(0))"],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(16)
    ]
    ended = [(*process.communicate(timeout=60), process.returncode) for process in started]
    after = states(trees.root)
    for folder in (path for path in trees.root.rglob("*") if path.is_dir()):
        folder.chmod(0o755)
    line = f"cannery: dapo (verl-src): {trees.tree}/recipe/dapo.py does not exist\n"
    assert ended == [("patched\n", line if rank == 0 else "", 0) for rank in range(16)]
    assert after == before


def test_the_syntax_is_that_of_python_3_10() -> None:
    for path in (SCRIPT, PLUGIN, *SCRIPT.parent.glob("verifying/**/*.py")):
        assert ast.parse(path.read_text(), feature_version=(3, 10)).body
