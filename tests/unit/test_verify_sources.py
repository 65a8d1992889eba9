"""Components installed from source, as the verify script sees them: distributions, trees, places, kernels' chips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from data.verify_tree import MINOR, SAYS, Tree

from verifying import access

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIB = f"/opt/venv/lib/python{MINOR}/site-packages"
VERL = "/opt/src/verl-src"
NO_PLUGIN = "no distribution of the manifest is a platform plugin of vLLM (entry points vllm.platform_plugins)"
MEGATRON = {"megatron/core/__init__.py": "", "megatron/training/__init__.py": "", "pretrain_gpt.py": ""}
PACKAGE_INFO = "MAJOR = 0\nMINOR = 8\nPATCH = 0\nPRE_RELEASE = ''\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(access, "PRIVATE", "/no-such-home/")  # the interpreter of the tests may live below /root
    (tmp_path / "image").mkdir()
    return Tree(tmp_path / "image")


def said(tree: Tree, check: str) -> list[str]:
    """What a check that failed says: its one fault, or its faults."""
    outcome = tree.check(check)
    assert outcome.status == "failed", outcome
    return list(outcome.details) or [outcome.message]


def wheel(tree: Tree, found: str = "0.13.0+empty", wanted: str | None = "0.13.0") -> dict[str, Any]:
    """A source that became a wheel: vLLM, whose build for no device adds a local part to its version."""
    tree.install("vllm", found, {"vllm/__init__.py": ""}, listed=False)
    return tree.source("vllm", wanted, "wheel")


@pytest.mark.parametrize("finder", [False, True])
def test_sources_in_order_pass(tree: Tree, *, finder: bool) -> None:
    wheel(tree)
    tree.editable("verl-src", "0.8.0.dev0", "verl", finder=finder)
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    tree.manifest["checks"]["imports"] += [
        {"module": "verl", "component": "verl-src"},
        {"module": "megatron.core", "component": "megatron-lm"},
    ]
    assert tree.failing("static", "import") == {"import.plugins": NO_PLUGIN}
    assert tree.check("static.manifest").message.endswith("of profile demo, 4 distributions, 3 sources")
    assert tree.check("static.wheels").message == "6 distributions as in the manifest"
    assert tree.check("static.sources").message == f"verl-src in {VERL}, megatron-lm in /opt/src/megatron-lm"
    assert tree.check("static.shadow").message.startswith("7 modules, each from one place, seen from /")
    assert tree.check("import.verl").message == f"verl from {VERL}/verl/__init__.py"


def test_an_image_without_sources_says_so(tree: Tree) -> None:
    assert tree.check("static.sources").message == "the manifest lists no source trees"
    assert tree.check("static.device-type").message == "vllm-ascend is not in this image"


def test_native_parts_that_are_left_out_are_told_with_the_reason(tree: Tree) -> None:
    wheel(tree)["without"] = "no CANN to compile against"
    expected = "the manifest lists no source trees; vllm without native parts (no CANN to compile against)"
    assert tree.check("static.sources").message == expected


@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        ("0.13.0+empty", "0.13.0", ""),
        ("0.13.0+empty", "0.13.0+gabc", ""),
        ("0.10.0rc2.dev53+g1de16ead8", "0.10.0rc2.dev53", ""),
        ("0.9.9", None, ""),  # a user's own tree
        ("0.13.1+empty", "0.13.0", "vllm is 0.13.1+empty, the manifest says 0.13.0"),
    ],
)
def test_versions_of_sources_compare_by_their_public_part(
    tree: Tree, found: str, wanted: str | None, says: str
) -> None:
    wheel(tree, found, wanted)
    assert tree.failing("static") == ({"static.wheels": says} if says else {})


@pytest.mark.parametrize(("version", "says"), [("1.0", "gone 1.0 is not installed"), (None, "gone is not installed")])
def test_a_distribution_that_is_not_there_is_missed(tree: Tree, version: str | None, says: str) -> None:
    tree.source("gone", version, "wheel")
    assert tree.failing("static") == {"static.wheels": says}


def test_a_tree_needs_no_distribution_and_its_name_excuses_none(tree: Tree) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON, name="megatron-core")
    assert tree.failing("static") == {}
    tree.install("megatron-core", "0.12.1", {"other.py": ""}, listed=False)
    assert tree.failing("static") == {"static.wheels": "megatron-core 0.12.1 is not in the manifest"}


def test_the_files_of_a_sources_distribution_are_held_to_its_record(tree: Tree) -> None:
    wheel(tree)
    tree.write(f"{tree.site_name}/vllm/__init__.py", "x = 1")
    wanted = f"vllm: reinstalled or overwritten: {LIB}/vllm/__init__.py has 5 bytes, recorded are 0"
    assert tree.failing("static") == {"static.files": wanted}


def test_another_editable_install_of_a_name_is_told_by_where_its_module_comes_from(tree: Tree) -> None:
    tree.editable("verl-src", "0.8.0.dev0", "verl")
    tree.manifest["checks"]["imports"].append({"module": "verl", "component": "verl-src"})
    tree.write("/home/me/verl/verl/__init__.py")
    tree.write(f"{tree.site_name}/__editable__.verl_src.pth", f"{tree.root}/home/me/verl\n")
    wanted = f"verl comes from /home/me/verl/verl/__init__.py (version unknown), not from {VERL}"
    assert said(tree, "static.shadow") == [wanted]


def test_a_module_of_a_wheel_that_comes_from_a_tree_is_told(tree: Tree) -> None:
    wheel(tree)
    tree.write("/home/me/vllm/vllm/__init__.py")
    tree.write(f"{tree.site_name}/a.pth", f"{tree.root}/home/me/vllm\n")
    assert said(tree, "static.shadow")[0].startswith("vllm: /home/me/vllm/vllm (version unknown) is beside ")


def gone(tree: Tree) -> None:
    (tree.root / "opt/src/megatron-lm").rename(tree.root / "opt/elsewhere")


def emptied(tree: Tree) -> None:
    gone(tree)
    (tree.root / "opt/src/megatron-lm/megatron/core").mkdir(parents=True)


def a_file(tree: Tree) -> None:
    gone(tree)
    tree.write("/opt/src/megatron-lm")


TREES: list[tuple[Callable[[Tree], object], str]] = [
    (gone, "megatron-lm: /opt/src/megatron-lm does not exist"),
    (emptied, "megatron-lm: /opt/src/megatron-lm is empty"),
    (a_file, "megatron-lm: /opt/src/megatron-lm is no folder"),
]


@pytest.mark.parametrize(("broken", "says"), TREES)
def test_a_tree_is_there_and_holds_files(tree: Tree, broken: Callable[[Tree], object], says: str) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    broken(tree)
    assert tree.failing("static") == {"static.sources": says}


def test_a_library_of_a_tree_finds_what_it_needs_too(tree: Tree) -> None:
    from data.verify_tree import elf  # noqa: PLC0415

    tree.tree_on_path("ops", "1", {"ops/__init__.py": ""})
    tree.write("/opt/src/ops/ops/_C.so", elf(("libnone.so.1",)))
    wanted = "/opt/src/ops/ops/_C.so needs libnone.so.1, which is not found"
    assert tree.failing("static") == {"static.libraries": wanted}


def test_a_closed_file_of_a_tree_is_told(tree: Tree) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    (tree.root / "opt/src/megatron-lm/pretrain_gpt.py").chmod(0o600)
    wanted = "/opt/src/megatron-lm/pretrain_gpt.py is closed to other users (mode 0600)"
    assert tree.failing("static") == {"static.readable": wanted}


# Where modules come from (P01, P07).


def test_two_megatrons_are_told_with_both_paths_and_versions(tree: Tree) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    tree.install("megatron-core", "0.9.0", {"megatron/core/__init__.py": ""})
    home = "/opt/src/megatron-lm/megatron/core"
    assert tree.failing("static") == {
        "static.shadow": f"megatron.core: {LIB}/megatron/core (megatron-core 0.9.0) is beside {home} (megatron-lm "
        f"0.12.1); import takes {home}"
    }


def test_a_megatron_that_nobody_installed_states_its_own_version(tree: Tree) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    tree.write("/opt/old/megatron/core/__init__.py")
    tree.write("/opt/old/megatron/core/package_info.py", PACKAGE_INFO)
    tree.env["PYTHONPATH"] = f"{tree.root}/opt/old:{tree.env['PYTHONPATH']}"
    assert tree.failing("static") == {
        "static.shadow": "megatron.core: /opt/old/megatron/core (0.8.0) is beside "
        "/opt/src/megatron-lm/megatron/core (megatron-lm 0.12.1); import takes /opt/old/megatron/core"
    }


def test_a_copy_that_is_no_namespace_is_told_with_what_import_takes(tree: Tree) -> None:
    tree.tree_on_path("mindspeed", "0.8.0", {"mindspeed/__init__.py": ""})
    tree.tree_on_path("fork", "1", {"mindspeed/__init__.py": ""})
    assert tree.check("static.shadow").message == (
        "mindspeed: /opt/src/mindspeed/mindspeed (mindspeed 0.8.0) is beside /opt/src/fork/mindspeed (fork 1); "
        "import takes /opt/src/fork/mindspeed/__init__.py"
    )


def test_a_link_to_the_same_tree_is_no_copy(tree: Tree) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    tree.tree_on_path("mindspeed", "0.8.0", {"mindspeed/__init__.py": ""})
    tree.tree_on_path("mindspeed-rl", "2.0.0", {"mindspeed_rl/__init__.py": ""})
    for name in ("megatron-lm/megatron", "mindspeed/mindspeed"):
        (tree.root / "opt/src/mindspeed-rl" / name.split("/")[1]).symlink_to(f"../{name}")
    tree.manifest["checks"]["imports"] += [
        {"module": "megatron.core", "component": "megatron-lm"},
        {"module": "mindspeed", "component": "mindspeed"},
    ]
    assert tree.failing("static") == {}
    assert tree.check("static.shadow").message.startswith("7 modules, ")


def test_training_scripts_of_one_name_in_two_trees_are_no_shadow(tree: Tree) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    tree.tree_on_path("mindspeed-llm", "0", {"mindspeed_llm/__init__.py": "", "pretrain_gpt.py": "", "docs/a.md": ""})
    assert tree.failing("static") == {}


def test_a_folder_of_data_in_a_tree_is_no_module(tree: Tree) -> None:
    tree.tree_on_path("megatron-lm", "0.12.1", {**MEGATRON, "images/a.png": "", "tasks/orqa/__init__.py": ""})
    tree.cwd = str(tree.root / "workspace")
    tree.write("/workspace/images/b.png")
    assert tree.failing("static") == {}
    tree.write("/workspace/tasks/b.py")
    assert said(tree, "static.shadow")[0].startswith("tasks: /workspace/tasks (version unknown) is beside ")


def test_a_link_from_site_packages_into_a_tree_is_no_stranger(tree: Tree) -> None:
    tree.tree_on_path("ops", "1", {"ops/__init__.py": "", "ops/data.txt": ""})
    (tree.site / "data.txt").symlink_to("/etc/passwd")
    assert said(tree, "static.files") == [f"1 file is in no RECORD: {LIB}/data.txt"]
    (tree.site / "data.txt").unlink()
    (tree.site / "data.txt").symlink_to(tree.root / "opt/src/ops/ops/data.txt")
    assert tree.failing("static") == {}


@pytest.mark.parametrize("finder", [False, True])
def test_a_copy_in_site_packages_hides_an_editable_install(tree: Tree, *, finder: bool) -> None:
    tree.editable("verl-src", "0.8.0.dev0", "verl", finder=finder)
    tree.install("verl", "0.7.0", {"verl/__init__.py": ""})
    first, second = f"{VERL}/verl (verl-src 0.8.0.dev0)", f"{LIB}/verl (verl 0.7.0)"
    other, home = (second, first) if finder else (first, second)
    assert tree.failing("static") == {
        "static.shadow": f"verl: {other} is beside {home}; import takes {LIB}/verl/__init__.py"
    }


def test_a_module_that_no_longer_comes_from_its_tree_is_told(tree: Tree) -> None:
    tree.editable("verl-src", "0.8.0.dev0", "verl")
    tree.install("verl", "0.7.0", {"verl/__init__.py": ""})
    tree.write(f"{tree.site_name}/__editable__.verl_src.pth", "\n")
    assert said(tree, "static.shadow") == [f"verl comes from {LIB}/verl/__init__.py (verl 0.7.0), not from {VERL}"]


@pytest.mark.parametrize(
    ("name", "shown"), [("verl/__init__.py", "verl"), ("verl.py", "verl.py"), ("verl/x.md", "verl")]
)
def test_a_folder_of_that_name_in_the_working_folder_is_told(tree: Tree, name: str, shown: str) -> None:
    tree.editable("verl-src", "0.8.0.dev0", "verl", finder=True)
    tree.write(f"/workspace/{name}")
    tree.cwd = str(tree.root / "workspace")
    (fault,) = said(tree, "static.shadow")
    wanted = f"verl: /workspace/{shown} (version unknown) is beside {VERL}/verl (verl-src 0.8.0.dev0); import takes "
    assert fault.startswith(wanted)
    assert fault.removeprefix(wanted).startswith("/workspace/verl")  # the finder comes after sys.path


def test_the_tree_itself_as_working_folder_is_in_order(tree: Tree) -> None:
    tree.editable("verl-src", "0.8.0.dev0", "verl", finder=True)
    tree.tree_on_path("megatron-lm", "0.12.1", MEGATRON)
    for folder in ("verl-src", "megatron-lm"):
        tree.cwd = str(tree.root / "opt/src" / folder)
        assert tree.failing("static") == {}


def test_a_bare_folder_on_the_path_wins_over_an_editable_install(tree: Tree) -> None:
    tree.editable("verl-src", "0.8.0.dev0", "verl", finder=True)
    (tree.root / "opt/old/verl").mkdir(parents=True)
    tree.env["PYTHONPATH"] = f"{tree.root}/opt/old"
    wanted = f"verl comes from /opt/old/verl (version unknown), not from {VERL}"
    assert tree.failing("static") == {"static.shadow": wanted}


# The chip (C01).


def ascend(tree: Tree, files: dict[str, str], install: str = "wheel", chip: str = "910b") -> None:
    """vllm-ascend with some of its build's files, in an image for a chip."""
    tree.manifest["target"]["chip"] = chip
    files = {f"vllm_ascend/{name}": text for name, text in files.items()} | {"vllm_ascend/__init__.py": ""}
    if install == "wheel":
        tree.install("vllm-ascend", "0.13.0", files, listed=False)
        tree.source("vllm-ascend", "0.13.0", "wheel")
    elif install == "index":
        tree.install("vllm-ascend", "0.13.0", files)
    else:
        tree.editable("vllm-ascend", "0.13.0", "vllm_ascend")
        for name, text in files.items():
            tree.write(f"/opt/src/vllm-ascend/{name}", text)


WHERE = {"wheel": LIB, "index": LIB, "editable": "/opt/src/vllm-ascend"}
INFO = "vllm_ascend/_build_info.py"
OPS = "_cann_ops_custom/vendors/vllm-ascend/op_impl/ai_core/tbe"


def stated(word: str, name: str = "device_type") -> dict[str, str]:
    return {"_build_info.py": f"# made\n__{name}__ = '{word}'\n"}


@pytest.mark.parametrize("install", ["wheel", "index", "editable"])
@pytest.mark.parametrize(("chip", "word"), [("910b", "A2"), ("a3", "A3"), ("310p", "_310P"), ("950", "A5")])
def test_the_device_type_that_fits_is_named(tree: Tree, install: str, chip: str, word: str) -> None:
    ascend(tree, stated(word), install, chip)
    assert tree.failing("static") == {}
    wanted = f"vllm-ascend is built for {chip}: {word} in {WHERE[install]}/{INFO}"
    assert tree.check("static.device-type").message == wanted


@pytest.mark.parametrize("install", ["wheel", "index", "editable"])
def test_another_device_type_fails_and_names_both(tree: Tree, install: str) -> None:
    ascend(tree, stated("A2"), install, "a3")
    wanted = f"vllm-ascend is built for 910b (A2 in {WHERE[install]}/{INFO}), this image is for a3"
    assert tree.failing("static") == {"static.device-type": wanted}


@pytest.mark.parametrize(
    ("word", "chip", "status"),
    [
        ("ASCEND910B1", "910b", "passed"),
        ("ascend910b4-1", "910b", "passed"),
        ("ASCEND910B1", "a3", "failed"),
        ("ascend910_9391", "a3", "passed"),
        ("ascend910_9391", "910b", "failed"),
        ("910c", "a3", "passed"),
        ("ascend310p3vir01", "310p", "passed"),
        ("ascend910_9579", "950", "passed"),
        ("ascend910_9579", "a3", "failed"),
        ("ascend950dt_9582", "950", "passed"),
        ("ascend910b1", "910", "failed"),
    ],
)
def test_the_name_of_the_chip_that_older_builds_state(tree: Tree, word: str, chip: str, status: str) -> None:
    ascend(tree, stated(word, "soc_version"), chip=chip)
    assert tree.check("static.device-type").status == status


def test_kernels_of_another_chip_fail_by_their_folder(tree: Tree) -> None:
    ascend(
        tree, {f"{OPS}/config/ascend910b/ops.json": "", f"{OPS}/kernel/ascend910b/x.o": "", f"{OPS}/kernel/config": ""}
    )
    folder = f"{LIB}/vllm_ascend/{OPS}/kernel/ascend910b"
    assert tree.check("static.device-type").message == f"vllm-ascend is built for 910b: ascend910b in {folder}"
    tree.manifest["target"]["chip"] = "a3"
    wanted = f"vllm-ascend is built for 910b (ascend910b in {folder}), this image is for a3"
    assert tree.failing("static") == {"static.device-type": wanted}


def test_kernels_for_several_chips_pass_when_this_one_is_among_them(tree: Tree) -> None:
    ascend(tree, {f"{OPS}/config/{unit}/ops.json": "" for unit in ("ascend910b", "ascend910_93")}, chip="a3")
    assert tree.check("static.device-type").status == "passed"


def test_where_the_manifest_leaves_the_kernels_out_the_check_of_them_is_skipped_with_the_reason(tree: Tree) -> None:
    tree.editable("vllm-ascend", "0.13.0", "vllm_ascend")
    tree.manifest["sources"][-1]["without"] = "no CANN to compile against"
    tree.manifest["may_skip"].append("static.device-type")
    outcome = tree.check("static.device-type")
    assert (outcome.status, outcome.message) == (
        "skipped",
        "vllm-ascend has no kernels here: no CANN to compile against",
    )
    tree.manifest["may_skip"].remove("static.device-type")
    assert tree.check("static.device-type").status == "failed", "a skip that the manifest does not name"


def test_kernels_that_are_there_after_all_are_looked_at(tree: Tree) -> None:
    tree.editable("vllm-ascend", "0.13.0", "vllm_ascend")
    tree.manifest["sources"][-1]["without"] = "no CANN to compile against"
    tree.manifest["may_skip"].append("static.device-type")
    tree.write("/opt/src/vllm-ascend/vllm_ascend/_build_info.py", "__device_type__ = 'A3'\n")
    assert tree.check("static.device-type").status == "failed"


def lacking(tree: Tree, name: str = "torch-memory-saver") -> None:
    """What a stand-in does without."""
    item = {"name": name, "reason": "C++ against CANN", "modules": ["torch_memory_saver"]}
    tree.manifest.setdefault("left_out", []).append(item)


def test_what_is_left_out_is_told_by_name_and_reason(tree: Tree) -> None:
    lacking(tree)
    told = "the manifest lists no source trees; torch-memory-saver left out (C++ against CANN)"
    assert tree.check("static.sources").message == told


def test_what_is_left_out_must_not_be_there(tree: Tree) -> None:
    lacking(tree)
    assert tree.check("static.wheels").status == "passed"
    tree.install("torch_memory_saver", "0.0.8", {"torch_memory_saver/__init__.py": ""}, listed=False)
    assert said(tree, "static.wheels") == ["torch-memory-saver 0.0.8 is not in the manifest"]


def test_who_asks_for_what_is_left_out_is_skipped_and_listed(tree: Tree) -> None:
    lacking(tree)
    line = "sglang 0.5.2 requires torch_memory_saver, which is not installed."
    tree.write(SAYS, line)
    assert tree.check("static.pip-check").message == f"no broken requirements; skipped: {line}"
    tree.write(SAYS, f"{line}\nsglang 0.5.2 requires timm, which is not installed.")
    assert said(tree, "static.pip-check") == ["sglang 0.5.2 requires timm, which is not installed."]
    tree.manifest["left_out"].clear()
    assert len(said(tree, "static.pip-check")) == 2


def test_without_kernels_and_device_type_it_says_so(tree: Tree) -> None:
    ascend(tree, {})
    assert tree.failing("static") == {}
    assert tree.check("static.device-type").message == "vllm-ascend states no chip, has no kernels"


def test_a_device_type_of_unknown_name_is_a_warning(tree: Tree) -> None:
    ascend(tree, stated("A7"))
    wanted = f"vllm-ascend is built for a chip of unknown name (A7 in {LIB}/{INFO}), this image is for 910b"
    assert tree.failing("static") == {"static.device-type": wanted}
    assert tree.check("static.device-type").status == "warning"


def test_chips_of_the_manifests_own_entry_count_for_every_source(tree: Tree) -> None:
    tree.tree_on_path("ops", "1", {"ops/__init__.py": ""}, chips=["910b", "a3"])
    assert tree.check("static.device-type").status == "passed"
    tree.manifest["target"]["chip"] = "310p"
    wanted = "ops has kernels for 910b and a3, this image is for 310p"
    assert tree.failing("static") == {"static.device-type": wanted}
