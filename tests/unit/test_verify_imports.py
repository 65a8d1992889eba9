"""The import level: children that report as they go, crashes and silences with a culprit, the first cause."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from data.verify_tree import ASCEND, TOOLKIT, Tree

from verifying import child
from verifying.checks import CHECKS, check_ids, run_checks
from verifying.outcome import judged

if TYPE_CHECKING:
    from pathlib import Path

    from verifying.outcome import Outcome

MODULES = {
    "good": "__version__ = '3.1'\nclass inner: value = 5\n",
    "exits": "import sys; sys.exit(3)",
    "aborts": "import os; os.abort()",
    "leaves": "import os; os._exit(7)",
    "raises": "raise ValueError('odd\\nvalue')",
    "sleeps": "import time; print('going to sleep', flush=True); time.sleep(60)",
    "noisy": "import sys; print('{\"done\": 0, \"ok\": false}'); print('x' * 200000); print('err', file=sys.stderr)",
    "threads": "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()",
    "forks": "import os, time\nif os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)\n",
    "closes": "import os; os.close(1); os.close(2)",
    "chained": "try:\n    raise ImportError('libhccl.so: cannot open shared object file: No such file or directory')\n"
    "except ImportError as error:\n    raise RuntimeError('cannot infer device type') from error\n",
    "driver": "raise ImportError('libascend_hal.so: cannot open shared object file: No such file or directory')",
    "poison": "import builtins\nbuiltins.poisoned = True\n",
    "poisoned": "import builtins, os\nif hasattr(builtins, 'poisoned'): os.abort()\n",
    "spoils": "import builtins\nbuiltins.spoilt = True\nraise OSError('half done')",
    "spoilt": "import builtins\nassert not hasattr(builtins, 'spoilt')\n",
    "wrong_soc": "print('[WARN] soc version does not match: Ascend910B1, expected Ascend310P3')",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "image").mkdir()
    tree = Tree(tmp_path / "image")
    for name, text in MODULES.items():
        tree.write(f"{tree.site_name}/{name}.py", text)
    return tree


def imports(tree: Tree, *names: str, timeout: float = 20.0) -> dict[str, tuple[str, str]]:
    """Module → (status, message)."""
    tree.manifest["checks"]["imports"] = [{"module": name, "component": "c"} for name in names]
    found = run_checks(tree.image(timeout=timeout), [f"import.{name}" for name in names])
    return {item.id.removeprefix("import."): (item.status, item.message) for item in found}


def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the children by their tasks."""
    started: list[int] = []
    real = child._one_worker

    def counted(image: object, tasks: list[object], *more: object) -> object:
        started.append(len(tasks))
        return real(image, tasks, *more)

    monkeypatch.setattr(child, "_one_worker", counted)
    return started


def test_good_imports_share_one_child(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    started = children(monkeypatch)
    found = imports(tree, "good", "noisy", "demo", "threads", "closes")
    assert {status for status, _ in found.values()} == {"passed"}
    assert found["good"][1] == f"good 3.1 from {tree.site_name}/good.py"
    assert started == [5]


def test_each_failure_has_its_culprit_and_the_rest_go_on(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    started = children(monkeypatch)
    found = imports(tree, "exits", "good", "aborts", "leaves", "raises", "none", "demo")
    assert found["exits"] == ("failed", "SystemExit: 3")
    assert found["aborts"] == ("failed", "killed by SIGABRT")
    assert found["leaves"] == ("failed", "ended with code 7 before it was done")
    assert found["raises"] == ("failed", "ValueError: odd value")
    assert found["none"] == ("failed", "ModuleNotFoundError: No module named 'none'")
    assert found["good"][0] == found["demo"][0] == "passed"
    assert started == [7, 6, 4, 3, 2, 1]


def test_a_silence_is_ended_with_all_that_it_started(tree: Tree) -> None:
    begin = time.monotonic()
    found = imports(tree, "sleeps", "good", timeout=1.5)
    assert found["sleeps"] == ("failed", "no answer within 1.5 s")
    assert found["good"][0] == "passed"
    assert time.monotonic() - begin < 20


def test_what_a_failing_import_printed_is_told(tree: Tree) -> None:
    tree.manifest["checks"]["imports"] = [{"module": "sleeps", "component": "c"}]
    assert "going to sleep" in tree.check("import.sleeps", timeout=1.5).details


def test_a_fork_that_holds_the_pipe_does_not_hang(tree: Tree) -> None:
    begin = time.monotonic()
    assert imports(tree, "forks", "good")["good"][0] == "passed"
    assert time.monotonic() - begin < 20


def test_a_crash_that_only_comes_after_another_import_fails(tree: Tree) -> None:
    found = imports(tree, "poison", "poisoned")
    assert found["poison"][0] == "passed"
    assert found["poisoned"] == ("failed", "killed by SIGABRT")


def test_a_failed_import_does_not_spoil_the_next(tree: Tree) -> None:
    found = imports(tree, "spoils", "spoilt")
    assert found["spoils"][0] == "failed"
    assert found["spoilt"][0] == "passed"


def test_the_first_cause_is_told_not_the_last_symptom(tree: Tree) -> None:
    assert imports(tree, "chained")["chained"][1].startswith(
        f"libhccl.so is not found: no folder of LD_LIBRARY_PATH or of {TOOLKIT}"
    )
    tree.write(f"{TOOLKIT}/lib64/libhccl.so")
    script = f"{ASCEND}/ascend-toolkit/set_env.sh"
    why = f"it is in {TOOLKIT}/lib64, which is missing in LD_LIBRARY_PATH (set by {script})"
    assert imports(tree, "chained")["chained"][1] == f"libhccl.so is not found: {why}"


def test_a_toolkit_that_is_not_there_is_told(tree: Tree) -> None:
    tree.manifest["base"]["set_env"] = ["/gone/set_env.sh"]
    assert (
        "/gone/set_env.sh does not exist: the CANN toolkit is not in this image"
        in imports(tree, "chained")["chained"][1]
    )


def test_a_driver_library_asks_for_the_mount(tree: Tree) -> None:
    assert imports(tree, "driver")["driver"][1].startswith(
        "libascend_hal.so is not found: the host's driver brings it (mount "
    )


def test_kernels_of_another_chip_fail(tree: Tree) -> None:
    status, message = imports(tree, "wrong_soc")["wrong_soc"]
    assert status == "failed"
    assert "soc version does not match" in message


@pytest.mark.parametrize(
    ("attribute", "equals", "status"),
    [
        ("__version__", "3.1.0", "passed"),
        ("inner.value", "5", "passed"),
        ("inner.value", "6", "failed"),
        ("nothing", None, "failed"),
        ("inner", None, "passed"),
    ],
)
def test_attributes(tree: Tree, attribute: str, equals: str | None, status: str) -> None:
    tree.manifest["checks"]["imports"] = [
        {"module": "good", "component": "c", "attribute": attribute, "equals": equals}
    ]
    assert tree.check("import.good").status == status


def test_one_module_with_two_attributes_is_one_check(tree: Tree) -> None:
    rows = [
        {"module": "good", "component": "c", "attribute": "inner", "equals": None},
        {"module": "good", "component": "c", "attribute": "__version__", "equals": "9"},
    ]
    tree.manifest["checks"]["imports"] = rows
    assert check_ids(tree.manifest).count("import.good") == 1
    assert tree.check("import.good").message == "good.__version__ is 3.1, the manifest says 9"


PAIR = "import.torch-npu-pair"


def test_the_pair(tree: Tree) -> None:
    assert tree.check(PAIR).message == "torch 2.13.0+cpu and torch_npu 2.13.0, C++ ABI 1; NPU available: False"


@pytest.mark.parametrize(
    ("path", "old", "new", "says"),
    [
        (
            "torch/__init__.py",
            '"2.13.0+cpu"',
            '"2.13.0+cu126"',
            "torch is 2.13.0+cu126 at import, the manifest says 2.13.0+cpu",
        ),
        ("torch_npu/__init__.py", '"2.13.0"', '"2.14.0"', "torch_npu 2.14.0 is not made for torch 2.13.0+cpu"),
        ("torch/__init__.py", "ABI = True", "ABI = False", "torch has the C++ ABI 0, ATB of this image 1"),
        ("torch_npu/__init__.py", 'sys.modules["torch_npu._C"] = _C', "", "torch_npu's C extension is not loaded"),
        ("torch/__init__.py", "def is_available", "def gone", "AttributeError"),
    ],
)
def test_a_broken_pair(tree: Tree, path: str, old: str, new: str, says: str) -> None:
    file = tree.site / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    found = tree.check(PAIR)
    assert found.status == "failed"
    assert says in "\n".join([found.message, *found.details])


def test_a_forced_pair_of_two_releases_fails(tree: Tree) -> None:
    next(item for item in tree.wheels if item["name"] == "torch-npu")["version"] = "2.14.0"
    file = tree.site / "torch_npu/__init__.py"
    file.write_text(file.read_text().replace("2.13.0", "2.14.0"))
    assert tree.check(PAIR).message == "torch_npu 2.14.0 is not made for torch 2.13.0+cpu"


def test_without_torch_npu_there_is_no_pair(tree: Tree) -> None:
    tree.manifest["wheels"] = [item for item in tree.wheels if item["name"] != "torch-npu"]
    ids = check_ids(tree.manifest)
    assert PAIR not in ids
    assert "npu.tensor" not in ids


def test_an_import_is_left_out_by_name_on_a_stand_in_only(tree: Tree) -> None:
    tree.manifest["checks"]["imports"] = [{"module": "aborts", "component": "c"}]
    tree.manifest["may_skip"].append("import.aborts")
    assert tree.check("import.aborts").status == "failed"
    tree.manifest["base"]["kind"] = "standin"
    outcome = tree.check("import.aborts")
    assert (outcome.status, outcome.message) == (
        "skipped",
        "stand-in: the manifest leaves it out on a stand-in base",
    )


def test_a_skipped_import_says_its_own_reason(tree: Tree) -> None:
    tree.manifest["checks"]["imports"] = [
        {"module": "aborts", "component": "c", "standin": "it asks for a driver"},
        {"module": "aborts", "component": "c", "attribute": "x"},
        {"module": "absent.part", "component": "d"},
    ]
    tree.manifest["left_out"] = [{"name": "absent", "reason": "C++ against CANN", "modules": ["absent.part"]}]
    tree.manifest["may_skip"] += ["import.aborts", "import.absent.part"]
    tree.manifest["base"]["kind"] = "standin"
    messages = {name: tree.check(name).message for name in ("import.aborts", "import.absent.part")}
    assert messages == {
        "import.aborts": "stand-in: it asks for a driver",
        "import.absent.part": "stand-in: absent is left out: C++ against CANN",
    }
    tree.manifest["base"]["kind"] = "cann"
    assert tree.check("import.aborts").status == "failed"


def test_no_interpreter_fails_each_import(tree: Tree) -> None:
    (tree.root / "opt/venv/bin/python").unlink()
    found = imports(tree, "good", "demo")
    assert {message for _, message in found.values()} == {
        "cannot start /opt/venv/bin/python: No such file or directory"
    }


def test_children_leave_nothing_behind(tree: Tree) -> None:
    before = sorted(str(path) for path in tree.site.rglob("*"))
    imports(tree, "good", "demo")
    assert sorted(str(path) for path in tree.site.rglob("*")) == before
    assert not [name for name in os.listdir(tree.root) if name.startswith("tmp")]  # noqa: PTH208


def test_a_good_import_is_reported_before_the_next_one_is_done(tree: Tree) -> None:
    """The second module waits for a file that the report of the first one makes."""
    mark = tree.root / "first-was-reported"
    waiting = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.01)\n"
    tree.add("second.py", waiting.format(str(mark)))
    tree.manifest["checks"]["imports"].append({"module": "second", "component": "c"})
    ended: list[str] = []

    def tell(outcome: Outcome) -> None:
        ended.append(outcome.id)
        mark.touch()

    wanted = ["import.demo", "import.second"]
    found = run_checks(tree.image(timeout=10), wanted, tell)
    assert [item.status for item in found] == ["passed", "passed"]
    assert ended == wanted


# A hollow package, ATB's symbols, and the python of the image's PATH


@pytest.mark.parametrize("name", ["triton", "hollow", "demo.empty"])
def test_a_folder_without_code_is_no_import(tree: Tree, name: str) -> None:
    """W9: what is left of a package that another one removed still imports, as a namespace."""
    (tree.site / name.replace(".", "/")).mkdir()
    status, message = imports(tree, name)[name]
    assert status == "failed"
    assert message.startswith(f"{name} is a folder without code: ")


@pytest.mark.parametrize("symbol", ["_ZN3atb9GetOpNameE", "_ZTIN3atb9OperationE"])
@pytest.mark.parametrize("fits", [["9.0.0", "9.1.0"], []])
def test_a_symbol_that_atb_lacks_is_told_by_nnal(tree: Tree, symbol: str, fits: list[str]) -> None:
    text = f"raise ImportError('/x/libtorch_npu.so: undefined symbol: {symbol}')"
    tree.write(f"{tree.site_name}/atb_user.py", text)
    tree.manifest["torch_npu_cann"] = fits
    status, message = imports(tree, "atb_user")["atb_user"]
    assert status == "failed"
    assert message.startswith(f"NNAL 8.3.rc1 is too old for torch_npu 2.13.0: its ATB does not define {symbol}; ")
    assert ("torch_npu 2.13.0 is made for CANN 9.0.0 or 9.1.0" in message) is bool(fits)


def test_another_undefined_symbol_is_shown_as_it_is(tree: Tree) -> None:
    tree.write(f"{tree.site_name}/other_user.py", "raise ImportError('/x/y.so: undefined symbol: _ZN5torch3fooE')")
    assert imports(tree, "other_user")["other_user"][1].startswith("ImportError: /x/y.so: undefined symbol")


def python_of(tree: Tree, path: str) -> tuple[str, str]:
    tree.env["PATH"] = path
    found = tree.check("import.python")
    return found.status, found.message


def test_python_of_the_images_path_imports_torch_npu(tree: Tree) -> None:
    """S6: a container whose PATH was replaced found no Python, and verify passed."""
    assert python_of(tree, "/opt/venv/bin:/usr/bin") == ("passed", "/opt/venv/bin/python -c 'import torch_npu'")
    assert python_of(tree, "/opt/mine/bin") == ("failed", "there is no python on PATH=/opt/mine/bin")
    tree.write("/opt/mine/bin/python", "#!/bin/sh\nexit 3\n", 0o755)
    status, message = python_of(tree, "/opt/mine/bin:/opt/venv/bin")
    assert (status, message) == (
        "failed",
        "/opt/mine/bin/python -c 'import torch_npu': ended with code 3 before it was done",
    )
    tree.write("/opt/mine/bin/python", "#!/bin/sh\nexit 0\n", 0o755)
    assert python_of(tree, "/opt/mine/bin:/opt/venv/bin") == (
        "failed",
        "python is /opt/mine/bin/python, not /opt/venv/bin/python",
    )


def test_torch_is_imported_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    started = children(monkeypatch)
    with (tree.site / "torch_npu/__init__.py").open("a") as file:
        file.write(f"open({str(tree.root / 'times')!r}, 'a').write('x')\n")
    ids = ["import.torch", "import.python", "import.torch-npu-pair"]
    tree.manifest["checks"]["imports"] = [{"module": "torch", "component": "c"}]
    assert {item.status for item in run_checks(tree.image(), ids)} == {"passed"}
    assert (started, (tree.root / "times").read_text()) == ([2], "x")


@pytest.mark.parametrize(("module", "check"), [("torch", "import.torch"), ("torch_npu", "import.torch-npu-pair")])
def test_what_torch_printed_belongs_to_its_own_check(tree: Tree, module: str, check: str) -> None:
    with (tree.site / module / "__init__.py").open("a") as file:
        file.write(MODULES["wrong_soc"] + "\n")
    tree.manifest["checks"]["imports"] = [{"module": name, "component": "c"} for name in ("good", "torch")]
    ids = ["import.good", "import.torch", "import.torch-npu-pair", "import.python"]
    found = {item.id: item.status for item in run_checks(tree.image(), ids)}
    assert found == {**dict.fromkeys(ids, "passed"), check: "failed"}


def test_imports_run_beside_the_checks_before_them(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcomes come in order all the same, and a file that an import leaves is not the image's."""
    waited = tree.site / "waited"
    for name in MODULES:
        (tree.site / f"{name}.py").unlink()
    tree.install("leaver", "1.0", {"leaver.py": f"open({str(waited)!r}, 'w').close()\n"})

    def waits(_image: object) -> Outcome:
        for _ in range(200):
            if waited.exists():
                return judged((), "seen")
            time.sleep(0.05)
        return judged(["the import has not begun"], "")

    monkeypatch.setitem(CHECKS, "static.manifest", waits)
    tree.manifest["checks"]["imports"] = [{"module": "leaver", "component": "leaver"}]
    ids = ["static.manifest", "static.files", "import.leaver"]
    told: list[tuple[str, str]] = []
    run_checks(tree.image(), ids, lambda item: told.append((item.id, item.status)))
    assert told == [(name, "passed") for name in ids]
    # What is there before the next run is: the file of the import has become the image's.
    assert [item.status for item in run_checks(tree.image(), ids[:2])] == ["passed", "failed"]
    assert [item.status for item in run_checks(tree.image(), ids)] == ["passed", "failed", "passed"]
