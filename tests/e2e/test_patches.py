"""A plugin's patches in a real image: in force for any user on a read-only root, and told when they are not.

The engine and the plugin are made up: git repositories that the test makes, like verl and verl_npu in what matters.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cannery.context import read_context
from tests.e2e.engine_fixtures import ROOT, Cannery, Image, started
from tests.edge.git_trees import Repo
from tests.images.test_lines import profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

PYTHON, VERIFY = "/opt/venv/bin/python", "/opt/cannery/verify.py"
TREE = "/opt/src/engine"
INIT = "import torch\nimport torch_npu\n\nis_npu_available = torch.npu.is_available()\n"
CORE = "class Engine:\n    def start(self):\n        return 'plain'\n\n\ndef serve():\n    return Engine().start()\n"
PATCHED = CORE.replace("'plain'", "'patched'")
# As verl_npu has it: at its import it patches, checks and prints, in every process.
HOOK = """\
import shutil
import subprocess


def apply_patch():
    subprocess.run([shutil.which("patch"), "-p1"], check=True)


def after_patch_check():
    raise RuntimeError("the plugin's own check")


def start():
    apply_patch()
    print("Patch Summary of the plugin")
    after_patch_check()
"""
SETUP = "from setuptools import setup\nsetup(name={name!r}, version='1.0', packages=[{name!r}])\n"
# The process of somebody with an NPU.
WITH_NPU = "import torch, torch_npu; torch.npu.is_available = lambda: True; import engine; print(engine.serve())"


@dataclass(frozen=True)
class Patched:
    """The image, build.py on the checkout that has its profile, and the engine's repository at its commit."""

    image: Image
    own: Cannery
    repo: Path
    mirror: Path
    commit: str


def component(name: str, commit: str, known: dict[str, Any], **more: object) -> str:
    value = {
        "kind": "source",
        "summary": "made up",
        "hosts": {"github": f"made-up/{name}"},
        "install": "editable",
        "imports": [{"module": name}],
        **more,
    }
    revision = {"version": "1.0", "source": "its setup.py", "build_requires": ["setuptools"], **known}
    return yaml.safe_dump({**value, "revisions": {commit: revision}})


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory, cannery: Cannery) -> Iterator[Patched]:
    root, mirror = tmp_path_factory.mktemp("patched"), tmp_path_factory.mktemp("mirror")
    left_out = shutil.ignore_patterns("profiles", "locks", "__pycache__")
    for folder in ("images", "templates"):
        shutil.copytree(ROOT / folder, root / folder, ignore=left_out)
    shutil.copytree(ROOT / "images/locks/_tools", root / "images/locks/_tools")
    engine, plugin = Repo(mirror / "made-up/engine"), Repo(mirror / "made-up/plugin")
    files = {"engine/__init__.py": INIT + "from engine.core import serve\n", "engine/core.py": CORE}
    commit = engine.commit({**files, "setup.py": SETUP.format(name="engine")})
    engine.write({"engine/core.py": PATCHED})
    patch = engine.git("diff") + "\n"
    engine.write({"engine/core.py": CORE})
    own = plugin.commit(
        {
            "plugin/__init__.py": "from plugin.hook import start\n\nstart()\n",
            "plugin/hook.py": HOOK,
            f"plugin/patch/engine/{commit[:9]}/core.patch": patch,
            "setup.py": SETUP.format(name="plugin"),
        }
    )
    edit = {"name": "import-of-plugin", "component": "engine", "file": "engine/__init__.py", "imports": "plugin"}
    taken = {"name": "taken-over", "component": "plugin", "file": "plugin/hook.py"}
    edits = [
        {**edit, "when": "is_npu_available", "reason": "it does nothing unless it is imported"},
        {**taken, "takes_over": ["apply_patch", "after_patch_check"], "reason": "in force since the build"},
    ]
    sets = {"folder": "plugin/patch", "repos": {"engine": "engine"}}
    known = {"patches": {"engine": [commit]}}
    components = root / "images/components"
    (components / "engine.yaml").write_text(component("engine", commit, {}))
    text = component("plugin", own, known, after=["engine"], edits=edits, patch_sets=sets)
    (components / "plugin.yaml").write_text(text)
    profile = yaml.safe_load(profile_text(str(read_context(ROOT).arch)))
    profile["components"] += [{"name": "engine", "commit": commit}, {"name": "plugin", "commit": own}]
    (root / "images/profiles").mkdir()
    (root / "images/profiles/patched.yaml").write_text(yaml.safe_dump(profile))
    checkout = Cannery(cannery.engine, cannery.env, root)
    checkout.build_py("lock", "patched")
    done = checkout.build_py("image", "patched", "--git-mirror", str(mirror), "--json")
    image = Image(json.loads(done.stdout))
    yield Patched(image, checkout, engine.path, mirror, commit)
    cannery.docker("image", "rm", "--force", *image.table["references"])


def checks(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Status of each check, and all that it says."""
    told = {check["id"]: "\n".join([check["message"], *check["details"]]) for check in report["checks"]}
    return {check["id"]: (check["status"], told[check["id"]]) for check in report["checks"]}


def verified(cannery: Cannery, *place: str) -> dict[str, tuple[str, str]]:
    """Run the levels that need no NPU of the verify script, by `docker exec` or `docker run` with these words."""
    done = cannery.docker(*place, PYTHON, VERIFY, "--level", "static", "--level", "import", "--json", check=False)
    assert done.stdout, done.stderr
    return checks(json.loads(done.stdout))


@pytest.fixture
def container(cannery: Cannery, patched: Patched) -> Iterator[str]:
    found = started(cannery, [patched.image.reference, "sleep", "infinity"])
    yield found
    cannery.docker("rm", "--force", found)


def test_each_patch_is_in_force(patched: Patched) -> None:
    found = checks(patched.image.table["report"])
    assert found["static.patches"] == ("passed", "3 patches in force, 4 files")
    assert found["import.engine.core"][0] == "passed"
    assert patched.image.table["report"]["result"] == "passed"


def test_in_force_for_any_user_on_a_read_only_root(cannery: Cannery, patched: Patched) -> None:
    alone = ("run", "--rm", "--read-only", "--user", "65534", "--network", "none", patched.image.reference)
    found = verified(cannery, *alone)
    assert {name: told for name, told in found.items() if told[0] == "failed"} == {}
    assert found["import.engine.core"][0] == "passed"
    done = cannery.docker(*alone, PYTHON, "-c", WITH_NPU)
    assert done.stdout.splitlines() == ["Patch Summary of the plugin", "patched"]
    assert "cannery" not in done.stderr


def test_sixteen_processes_at_once_change_nothing(cannery: Cannery, container: str) -> None:
    script = f'for i in $(seq 16); do {PYTHON} -c "{WITH_NPU}" & done; wait'
    done = cannery.docker("exec", container, "sh", "-c", script)
    assert sorted(done.stdout.splitlines()) == ["Patch Summary of the plugin"] * 16 + ["patched"] * 16
    assert "Error" not in done.stderr
    changed = cannery.docker("diff", container).stdout.splitlines()
    assert [line for line in changed if "/opt" in line] == []


def test_patch_that_is_left_out_fails(cannery: Cannery, container: str) -> None:
    cannery.docker("exec", container, "sed", "-i", "s/'patched'/'plain'/", f"{TREE}/engine/core.py")
    found = verified(cannery, "exec", container)
    assert found["static.patches"][0] == "failed"
    assert "core" in found["static.patches"][1]
    assert f"{TREE}/engine/core.py" in found["static.patches"][1]


def test_another_engine_installed_over_it_is_named(cannery: Cannery, container: str, tmp_path: Path) -> None:
    wheel = tmp_path / "engine-1.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "engine-1.1.dist-info"
        archive.writestr("engine/__init__.py", INIT + "from engine.core import serve\n")
        archive.writestr("engine/core.py", CORE)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: engine\nVersion: 1.1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "engine/__init__.py,,\nengine/core.py,,\n")
    cannery.docker("cp", str(wheel), f"{container}:/tmp/{wheel.name}")
    cannery.docker("exec", container, PYTHON, "-m", "pip", "install", "--no-index", "--no-deps", f"/tmp/{wheel.name}")
    found = verified(cannery, "exec", container)
    failed = {name: told for name, (status, told) in found.items() if status == "failed"}
    assert "site-packages/engine/core.py" in failed["import.engine.core"]
    assert any("site-packages/engine" in told for name, told in failed.items() if name.startswith("static."))


def test_mounted_tree_without_a_patch_is_told(cannery: Cannery, patched: Patched, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(patched.repo, mine)
    (mine / "engine/__init__.py").write_text((mine / "engine/__init__.py").read_text() + "import plugin\n")
    mount = ("run", "--rm", "--volume", f"{mine}:{TREE}:ro", patched.image.reference)
    done = cannery.docker(*mount, PYTHON, "-c", WITH_NPU)
    assert done.stdout.splitlines() == ["Patch Summary of the plugin", "plain"]
    told = [line for line in done.stderr.splitlines() if line.startswith("cannery:")]
    neither = "has neither the patched nor the original content"
    assert told == [
        f"cannery: core (engine): {TREE}/engine/core.py is not patched",
        f"cannery: import-of-plugin (engine): {TREE}/engine/__init__.py {neither}",
    ]
    found = verified(cannery, *mount)
    assert found["static.patches"][0] == "failed"
    assert f"{TREE}/engine/core.py" in found["static.patches"][1]


def test_tree_of_ones_own_is_patched_at_build(patched: Patched, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(patched.repo, mine)
    (mine / "engine/mine.py").write_text("mine = 1\n")
    words = ("--src", f"engine={mine}", "--git-mirror", str(patched.mirror), "--json")
    done = patched.own.build_py("image", "patched", *words)
    table = json.loads(done.stdout)
    assert checks(table["report"])["import.engine.core"][0] == "passed"
    patched.own.docker("image", "rm", "--force", *table["references"])
