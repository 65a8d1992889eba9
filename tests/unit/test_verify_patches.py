"""Patches in an image: files as recorded, modules that come from them, and what is in their place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from data.verify_tree import MINOR, REPOSITORY, Tree

from verifying import access
from verifying.checks import check_ids, run_checks
from verifying.imports import not_imported

if TYPE_CHECKING:
    from pathlib import Path

    from verifying.outcome import Outcome

LIB = f"/opt/venv/lib/python{MINOR}/site-packages"
VERL = "/opt/src/verl"
FILE = f"{VERL}/verl/workers.py"
CHECK = "import.verl.workers"

NEW, OLD = "def plain():\n    return 'patched'\n", "def plain():\n    return 'as it was'\n"


def sha(text: str | bytes) -> str:
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()


def patch(name: str, *files: dict[str, Any], component: str = "verl") -> dict[str, Any]:
    more = {"from": "verl-npu", "rev": "796871d7d"}
    return {"name": name, "digest": sha("p"), "component": component, "files": list(files), **more}


def row(path: str, before: str | None, after: str | None, name: str = "") -> dict[str, Any]:
    hashes = {key: None if text is None else sha(text) for key, text in (("before", before), ("after", after))}
    return {"path": path, **hashes, "module": name}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """An image with verl as an editable tree, of which one module and one file that is none are patched."""
    monkeypatch.setattr(access, "PRIVATE", "/no-such-home/")  # the interpreter of the tests may live below /root
    (tmp_path / "image").mkdir()
    tree = Tree(tmp_path / "image")
    tree.editable("verl", "0.5.0.dev0", "verl")
    tree.write(FILE, NEW)
    tree.write(f"{VERL}/recipe/run.sh", "new\n")
    tree.manifest["patches"] = [
        patch("workers", row(FILE, OLD, NEW, "verl.workers")),
        patch("run", row(f"{VERL}/recipe/run.sh", "old\n", "new\n")),
    ]
    return tree


def said(outcome: Outcome) -> list[str]:
    """What a check that failed says: its one fault, or its faults."""
    assert outcome.status == "failed", outcome
    return [line for line in (outcome.message, *outcome.details) if not line.endswith(" faults")]


def test_patches_in_force_pass(tree: Tree) -> None:
    assert tree.failing("static", "import") == {}
    assert [name for name in check_ids(tree.manifest) if ".verl" in name] == [CHECK], "run is no module"
    assert tree.check("static.patches").message == "2 patches in force, 2 files"
    assert tree.check(CHECK).message == f"verl.workers from {FILE}"


def test_what_was_left_out_is_told_by_name_and_reason(tree: Tree) -> None:
    tree.manifest["patches_left_out"] = [{"name": "qwen", "component": "transformers", "reason": "a release"}]
    told = "qwen (transformers) left out: a release"
    assert tree.check("static.patches").message == f"2 patches in force, 2 files; {told}"
    tree.manifest["patches"] = []
    assert tree.check("static.patches").message == f"the manifest lists no patches; {told}"


def test_a_module_that_does_not_import_fails_with_its_first_cause(tree: Tree) -> None:
    tree.write(
        f"{VERL}/verl/__init__.py",
        "try:\n    raise ImportError('no megatron')\nexcept ImportError as e:\n    raise RuntimeError('x') from e\n",
    )
    outcome = tree.check(CHECK)
    assert outcome.message == "ImportError: no megatron"
    assert "RuntimeError: x" in outcome.details


def test_module_that_imports_alone_is_no_failure_behind_others(tree: Tree) -> None:
    tree.add("early.py", "")
    tree.manifest["checks"]["imports"].append({"module": "early", "component": "demo"})
    tree.write(f"{VERL}/verl/__init__.py", "import sys\nassert 'early' not in sys.modules\n")
    outcomes = {item.id: item for item in run_checks(tree.image(), ["import.early", CHECK])}
    assert outcomes[CHECK].status == "passed", outcomes[CHECK]


def test_one_that_crashes_costs_the_others_nothing(tree: Tree) -> None:
    tree.write(f"{VERL}/verl/dies.py", "import os\nos.abort()\ndef one(): ...\n")
    broken = row(f"{VERL}/verl/dies.py", None, "import os\nos.abort()\ndef one(): ...\n", "verl.dies")
    tree.manifest["patches"].insert(0, patch("dies", broken))
    outcomes = {item.id: item for item in run_checks(tree.image(), ["import.verl.dies", CHECK])}
    assert outcomes["import.verl.dies"].message == "killed by SIGABRT"
    assert outcomes[CHECK].status == "passed"


# Trees that are not the image's, and packages that were installed over one.


def test_an_unpatched_tree_in_the_place_of_the_patched_one_is_told(tree: Tree) -> None:
    tree.write(FILE, OLD)
    assert said(tree.check("static.patches")) == [f"workers (verl): {FILE} is not patched"]
    (tree.root / VERL[1:] / "recipe/run.sh").unlink()
    assert said(tree.check("static.patches")) == [
        f"workers (verl): {FILE} is not patched",
        f"run (verl): {VERL}/recipe/run.sh does not exist",
    ]


def test_more_changes_in_a_mounted_tree_are_told(tree: Tree) -> None:
    tree.write(FILE, f"{NEW}\nADDED = 1\n")
    assert said(tree.check("static.patches")) == [
        f"workers (verl): {FILE} has neither the patched nor the original content"
    ]
    assert tree.check(CHECK).status == "passed"


@pytest.mark.parametrize("version", ["0.7.0", "0.5.0.dev0"])
def test_another_verl_that_pip_put_over_it_is_told_with_its_files(tree: Tree, version: str) -> None:
    shutil.rmtree(tree.site / "verl-0.5.0.dev0.dist-info")
    (tree.site / "__editable__.verl.pth").unlink()
    tree.install("verl", version, {"verl/__init__.py": "", "verl/workers.py": OLD}, listed=False)
    found = {name: said(tree.check(name)) for name in tree.failing("static", "import")}
    copy = f"{LIB}/verl/workers.py"
    wheels = {} if version == "0.5.0.dev0" else {"static.wheels": ["verl is 0.7.0, the manifest says 0.5.0.dev0"]}
    assert found == {
        **wheels,
        "static.shadow": [f"verl comes from {LIB}/verl/__init__.py (verl {version}), not from {VERL}"],
        CHECK: [f"verl.workers comes from {copy}, not from {FILE}, which is patched"],
    }


def test_a_package_of_the_venv_that_was_reinstalled_is_told(tree: Tree) -> None:
    path = f"{LIB}/demo/part.py"
    tree.write(path, "x = 2\n")
    tree.manifest["patches"] = [patch("fix", row(path, "x = 1\n", "x = 2\n"), component="demo")]
    assert tree.check("static.patches").status == "passed"
    tree.install(
        "demo", "1.0", {"demo/__init__.py": "__version__ = '1.0.0'\n", "demo/part.py": "x = 1\n"}, listed=False
    )
    assert said(tree.check("static.patches")) == [f"fix (demo): {path} is not patched"]


# Several patches.


def test_patches_of_one_file_are_told_one_by_one(tree: Tree) -> None:
    texts = ["def one():\n    return 0\n", "def one():\n    return 1\n", "def one():\n    return 2\n"]
    tree.manifest["patches"] = [
        patch(name, row(FILE, texts[at], texts[at + 1], "verl.workers")) for at, name in enumerate(("first", "second"))
    ]
    tree.write(FILE, texts[2])
    assert tree.failing("static", "import") == {}
    tree.write(FILE, texts[1])
    assert said(tree.check("static.patches")) == [f"second (verl): {FILE} is not patched"]
    tree.write(FILE, texts[0])
    assert len(said(tree.check("static.patches"))) == 2


def test_each_module_that_patches_change_has_one_check(tree: Tree) -> None:
    text = "def one():\n    return 1\n"
    tree.write(f"{VERL}/verl/other.py", text)
    other = row(f"{VERL}/verl/other.py", None, text, "verl.other")
    tree.manifest["patches"] += [patch("workers", other, component="other"), patch("0001 fix: a/b", other)]
    item = {"module": "verl.other", "component": "verl", "attribute": "one"}
    tree.manifest["checks"]["imports"].append(item)
    found = [name for name in check_ids(tree.manifest) if ".verl" in name]
    assert sorted(found) == ["import.verl.other", CHECK]
    assert tree.check("import.verl.other").message == f"verl.other from {VERL}/verl/other.py"
    item["attribute"] = "two"
    assert tree.check("import.verl.other").status == "failed"
    assert tree.check("static.manifest").status == "passed"


# A stand-in.


def standin(tree: Tree, *paths: str) -> None:
    tree.manifest["base"]["kind"] = "standin"
    for file in (file for item in tree.manifest["patches"] for file in item["files"] if file["path"] in paths):
        file["standin"] = "it asks for a driver"
    tree.manifest["may_skip"] += sorted(not_imported(tree.manifest))


def test_a_module_that_a_stand_in_cannot_import_is_skipped_with_the_reason(tree: Tree) -> None:
    tree.write(f"{VERL}/verl/__init__.py", "raise OSError\n")
    standin(tree, FILE)
    outcome = tree.check(CHECK)
    assert (outcome.status, outcome.message) == ("skipped", "stand-in: it asks for a driver")
    tree.manifest["may_skip"].remove(CHECK)
    assert tree.check(CHECK).status == "failed", "a skip that the manifest does not name"
    tree.manifest["base"]["kind"] = "real"
    assert tree.check(CHECK).message == "OSError"


def test_of_a_patch_the_other_modules_are_looked_at(tree: Tree) -> None:
    text = "def one():\n    return 1\n"
    tree.write(f"{VERL}/verl/other.py", text)
    other = row(f"{VERL}/verl/other.py", None, text, "verl.other")
    tree.manifest["patches"][0]["files"].append(other)
    standin(tree, FILE)
    assert tree.check(CHECK).status == "skipped"
    assert tree.check("import.verl.other").message == f"verl.other from {VERL}/verl/other.py"


# The form, and the script as it is started.


def test_the_manifest_with_patches_is_of_the_published_form(tree: Tree) -> None:
    standin(tree, FILE)
    tree.manifest["patches_left_out"] = [{"name": "qwen", "component": "transformers", "reason": "a release"}]
    jsonschema.validate(tree.manifest, json.loads((REPOSITORY / "docs/manifest.schema.json").read_text()))


def states(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every name below a folder with its mode, time of change and content."""
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns, sha(path.read_bytes()) if path.is_file() else "")
        for path in sorted(folder.rglob("*"))
        if not path.is_symlink()
    }


def test_the_script_writes_nothing_and_needs_no_home(tree: Tree) -> None:
    shutil.rmtree(tree.root / "opt/cannery")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "templates/rootfs/opt/cannery", tree.root / "opt/cannery", ignore=ignore)
    tree.save()
    for folder in [tree.root, *(path for path in tree.root.rglob("*") if path.is_dir() and not path.is_symlink())]:
        folder.chmod(0o555)  # of use where the tests do not run as root
    before = states(tree.root)
    command = [sys.executable, str(tree.root / "opt/cannery/verify.py"), "--root", str(tree.root), "--json"]
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [*command, "--only", CHECK, "--only", "static.patches"], env=env, capture_output=True, text=True, check=False
    )
    after = states(tree.root)
    for path in [tree.root, *(path for path in tree.root.rglob("*") if path.is_dir() and not path.is_symlink())]:
        path.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    jsonschema.validate(report, json.loads((REPOSITORY / "docs/verify-report.schema.json").read_text()))
    assert [(item["id"], item["status"]) for item in report["checks"]] == [
        ("static.patches", "passed"),
        (CHECK, "passed"),
    ]
    assert after == before
