"""The plugins of vLLM and torch, as the verify script loads them: the installed code, nothing in its place (P06)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from data.verify_tree import MINOR, Tree

from verifying import child
from verifying.checks import check_ids, run_checks

if TYPE_CHECKING:
    from pathlib import Path

CHECK = "import.plugins"
LIB = f"/opt/venv/lib/python{MINOR}/site-packages"
CALLED = "[vllm.platform_plugins]\nascend = vllm_ascend:register\n\n[vllm.general_plugins]\nmore = nothing:here\n"
LOADED = "[torch.backends]\nTorch_NPU = torch_npu:_autoload\n"
REGISTER = "def register():\n    return 'vllm_ascend.platform.NPUPlatform'\n"
NAME = "vllm-ascend's ascend = vllm_ascend:register (vllm.platform_plugins)"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An image with vLLM and torch_npu's entry point; a test adds the plugin."""
    (tmp_path / "image").mkdir()
    tree = Tree(tmp_path / "image")
    tree.install("vllm", "0.13.0+empty", {"vllm/__init__.py": ""}, listed=False)
    tree.source("vllm", "0.13.0", "wheel")
    tree.write(f"{tree.site_name}/torch_npu-2.13.0.dist-info/entry_points.txt", LOADED)
    file = tree.site / "torch_npu/__init__.py"
    file.write_text(file.read_text() + "\ndef _autoload():\n    raise OSError('called')\n")
    return tree


def plugin(tree: Tree, text: str = REGISTER, points: str = CALLED, *, editable: bool = False) -> None:
    """Installs vllm-ascend with an __init__.py and entry points: as a wheel, or editable with a finder."""
    if editable:
        tree.editable("vllm-ascend", "0.13.0", "vllm_ascend", text, finder=True)
    else:
        tree.install("vllm-ascend", "0.13.0", {"vllm_ascend/__init__.py": text}, listed=False)
        tree.source("vllm-ascend", "0.13.0", "wheel")
    tree.write(f"{tree.site_name}/vllm_ascend-0.13.0.dist-info/entry_points.txt", points)


def said(tree: Tree) -> list[str]:
    """What the check says, which has to fail."""
    outcome = tree.check(CHECK)
    assert outcome.status == "failed", outcome
    return [outcome.message, *outcome.details]


@pytest.mark.parametrize("editable", [False, True])
def test_plugins_load_and_vllms_is_called(tree: Tree, *, editable: bool) -> None:
    plugin(tree, editable=editable)
    outcome = tree.check(CHECK)
    assert outcome.status == "passed"
    assert outcome.message == (
        f"torch-npu's Torch_NPU = torch_npu:_autoload (torch.backends); {NAME} gives vllm_ascend.platform.NPUPlatform"
    )


def test_a_release_from_the_index_counts_as_well(tree: Tree) -> None:
    tree.install("vllm-ascend", "0.13.0", {"vllm_ascend/__init__.py": "def register(): raise ValueError('no chip')"})
    tree.write(f"{tree.site_name}/vllm_ascend-0.13.0.dist-info/entry_points.txt", CALLED)
    assert said(tree) == [f"{NAME}: ValueError: no chip"]


def test_a_folder_without_code_fails_with_its_path(tree: Tree) -> None:
    plugin(tree)
    (tree.site / "vllm_ascend/__init__.py").unlink()
    assert said(tree) == [f"{NAME}: vllm_ascend is a folder without code: {LIB}/vllm_ascend"]


@pytest.mark.parametrize("editable", [False, True])
@pytest.mark.parametrize("shadow", ["vllm_ascend/", "vllm_ascend/__init__.py", "vllm_ascend.py"])
def test_what_stands_before_it_in_the_working_folder_fails_with_its_path(
    tree: Tree, shadow: str, *, editable: bool
) -> None:
    plugin(tree, editable=editable)
    tree.manifest["checks"]["imports"].append({"module": "vllm_ascend", "component": "vllm-ascend"})
    tree.cwd = str(tree.root / "workspace")
    path = tree.root / "workspace" / shadow
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if shadow.endswith("/") else path.touch()
    told = "/workspace/vllm_ascend.py" if shadow.endswith("d.py") else "/workspace/vllm_ascend"
    outcome = tree.check("static.shadow")
    assert outcome.status == "failed"
    assert outcome.message.startswith(f"vllm_ascend: {told} (")


def test_an_empty_folder_where_children_start_is_taken_for_an_editable_plugin(tree: Tree) -> None:
    plugin(tree, editable=True)
    (tree.root / "vllm_ascend").mkdir()
    tree.cwd = str(tree.root / "opt")
    assert said(tree) == [f"{NAME}: vllm_ascend is a folder without code: /vllm_ascend"]


def test_the_sources_own_tree_as_working_folder_is_in_order(tree: Tree) -> None:
    plugin(tree, editable=True)
    tree.cwd = str(tree.root / "opt/src/vllm-ascend")
    assert tree.check(CHECK).status == "passed"


@pytest.mark.parametrize("editable", [False, True])
def test_a_plugin_from_elsewhere_fails(tree: Tree, *, editable: bool) -> None:
    plugin(tree, editable=editable)
    tree.manifest["checks"]["imports"].append({"module": "vllm_ascend", "component": "vllm-ascend"})
    tree.write("/opt/old/vllm_ascend/__init__.py", REGISTER)
    tree.env["PYTHONPATH"] = f"{tree.root}/opt/old"
    outcome = tree.check("static.shadow")
    assert outcome.status == "failed"
    assert outcome.message.startswith("vllm_ascend: /opt/old/vllm_ascend (")
    assert outcome.message.endswith("; import takes /opt/old/vllm_ascend/__init__.py")


def test_a_module_without_the_function_fails_with_its_file(tree: Tree) -> None:
    plugin(tree, "x = 1\n")
    assert said(tree) == [f"{NAME}: {LIB}/vllm_ascend/__init__.py has no register"]


def test_an_entry_point_that_python_does_not_find_fails(tree: Tree) -> None:
    plugin(tree)
    # The first distribution of a name is the one: here a leftover without entry points.
    tree.write(
        "/opt/old/vllm_ascend-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm-ascend\nVersion: 0.1\n"
    )
    tree.env["PYTHONPATH"] = f"{tree.root}/opt/old"
    assert said(tree) == [f"{NAME}: Python does not find this entry point"]


def test_the_first_cause_is_told(tree: Tree) -> None:
    text = "raise ImportError('libhccl.so: cannot open shared object file: No such file or directory')"
    plugin(tree, text)
    assert said(tree)[0].startswith(f"{NAME}: libhccl.so is not found: no folder of LD_LIBRARY_PATH or of ")


def test_what_a_failing_plugin_printed_is_told(tree: Tree) -> None:
    plugin(tree, "print('half way')\nraise ValueError('odd')")
    assert said(tree) == [f"{NAME}: ValueError: odd", "half way"]


def test_a_failing_plugin_does_not_spoil_the_next(tree: Tree) -> None:
    plugin(tree, "import builtins\nbuiltins.spoilt = True\nraise ValueError('odd')")
    points = "[vllm.platform_plugins]\nnext = zeta:register\n"
    text = f"import builtins\nassert not hasattr(builtins, 'spoilt')\n{REGISTER}"
    tree.install("zeta", "1", {"zeta.py": text})
    tree.write(f"{tree.site_name}/zeta-1.dist-info/entry_points.txt", points)
    assert said(tree) == [f"{NAME}: ValueError: odd"]


def test_kernels_of_another_chip_fail(tree: Tree) -> None:
    plugin(tree, "def register(): print('soc version mismatch: Ascend910B1')")
    assert said(tree) == [f"{NAME}: was built for another chip: soc version mismatch: Ascend910B1"]


def test_a_crash_is_the_plugins_own_and_the_others_go_on(tree: Tree) -> None:
    plugin(tree, "import os\ndef register(): os.abort()", CALLED + "\n[torch.backends]\na = demo.part:x\n")
    outcomes = {item.id: item for item in run_checks(tree.image(), ["import.demo", CHECK])}
    assert outcomes["import.demo"].status == "passed"
    assert outcomes[CHECK].message == f"{NAME}: killed by SIGABRT"


def test_plugins_share_the_child_of_the_imports(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tree)
    started: list[int] = []
    real = child._one_worker

    def counted(image: object, tasks: list[object], *more: object) -> object:
        started.append(len(tasks))
        return real(image, tasks, *more)

    monkeypatch.setattr(child, "_one_worker", counted)
    found = list(run_checks(tree.image(), ["import.demo", "import.torch-npu-pair", CHECK]))
    assert [item.status for item in found] == ["passed"] * 3
    assert started == [4]


@pytest.mark.parametrize("points", ["", "[vllm.general_plugins]\na = vllm_ascend:register\n", "no sections"])
def test_vllm_without_a_platform_plugin_fails(tree: Tree, points: str) -> None:
    plugin(tree, points=points)
    wanted = "no distribution of the manifest is a platform plugin of vLLM (entry points vllm.platform_plugins)"
    assert said(tree) == [wanted]


def test_without_vllm_there_is_no_such_check(tree: Tree) -> None:
    plugin(tree)
    assert check_ids(tree.manifest).count(CHECK) == 1
    tree.manifest["sources"][0].update(install="tree", path="/opt/src/vllm")  # code, but no distribution
    assert CHECK not in check_ids(tree.manifest)
    tree.manifest["may_skip"].append(CHECK)  # a profile may have it for all its targets
    assert tree.check("static.manifest").status == "passed"


def test_it_is_left_out_by_name_on_a_stand_in_only(tree: Tree) -> None:
    plugin(tree, "raise ValueError('no CANN')")
    tree.manifest["may_skip"].append(CHECK)
    assert tree.check(CHECK).status == "failed"
    tree.manifest["base"]["kind"] = "standin"
    assert tree.check(CHECK).status == "skipped"


def test_a_module_called_plugins_cannot_have_its_id(tree: Tree) -> None:
    tree.manifest["checks"]["imports"].append({"module": "plugins", "component": "c"})
    wanted = "checks.imports names a module whose check would be import.plugins, which is another check"
    assert tree.check("static.manifest").message == wanted
