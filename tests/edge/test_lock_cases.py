"""Field cases about what `lock` and `check` answer, on a made-up index: 04 (DeepSpeed), 10 (half of a pair moved)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_checkout import Small, make_small
from stub_index import StubIndex, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DENY = """\
deny:
  - {pattern: "nvidia-[!m]*", reason: CUDA libraries}
  - {pattern: "nvidia-m[!l]*", reason: CUDA libraries}
  - {pattern: "vllm", wheel: true, reason: its wheel is built for CUDA}
"""


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


def edit(small: Small, old: str, new: str) -> None:
    text = small.profile().read_text()
    assert old in text
    small.profile().write_text(text.replace(old, new))


def take(small: Small, name: str, version: str, *requires: str) -> None:
    """Put a package on the index, and into the profile as a component."""
    small.index.add(make_wheel(name, version, list(requires)))
    (small.root / f"images/components/{name}.yaml").write_text("kind: wheels\nsummary: made up\n")
    edit(small, "  - {name: lib}\n", f"  - {{name: lib}}\n  - {{name: {name}}}\n")
    table = small.root / "images/compatibility.yaml"
    table.write_text(table.read_text() + DENY)


def test_10_lock_and_check_offer_the_same_fitting_pair(small: Small) -> None:
    edit(small, "version: '2.8.0'  # its row", 'version: "2.10.0"')
    lock, check = small("lock", "stack"), small("check", "stack")
    assert (lock.code, check.code) == (3, 3)
    assert "torch-npu 2.8.0 instead of 2.10.0" in lock.err
    assert "torch 2.8.0 with torch-npu 2.8.0" in check.out
    assert "this set cannot be built" in check.out


def test_a_missing_lock_is_no_set_that_cannot_be_built(small: Small) -> None:
    for path in (small.root / "images/locks/stack").iterdir():
        path.unlink()
    check, plan = small("check", "stack"), small("plan", "stack")
    assert (check.code, plan.code) == (3, 3)
    assert "the lock has to be made first" in check.out
    assert "cannot be built" not in check.out + plan.err


@pytest.mark.parametrize("name", ["nvidia-ml-py", "pynvml"])
def test_04_pure_python_of_nvidia_is_allowed(small: Small, name: str) -> None:
    small.index.add(make_wheel(name, "12.0"))
    take(small, "deepspeed", "0.16.4", name)
    done = small("lock", "stack")
    assert done.code == 0, done.err
    assert small.versions()[name] == "12.0"
    assert small("check", "stack").code == 0


@pytest.mark.parametrize("name", ["nvidia-nccl-cu12", "nvidia-modelopt", "vllm"])
def test_04_cuda_that_comes_in_is_refused_with_who_asks(small: Small, name: str) -> None:
    small.index.add(make_wheel(name, "12.0"))
    take(small, "deepspeed", "0.16.4", name)
    assert small("lock", "stack").code == 0
    done = small("check", "stack")
    assert done.code == 3
    assert f"{name} 12.0: profile → deepspeed → {name}" in done.out


COMMIT = "0123456789abcdef0123456789abcdef01234567"
LLM = f"""\
kind: source
summary: imports a build that no index has
package: llm
hosts: {{github: own/llm}}
install: tree
revisions:
  {COMMIT}:
    version: "1.0"
    requires: [fused-ops==0.1+mine]
    source: made up
"""
OPS = """\
kind: wheels
summary: made up
package: fused-ops
index: own-wheels
local: mine
metadata: {"0.1": {requires: [], source: made up}}
"""


def test_a_build_of_ones_own_is_named_before_anything_is_built_and_taken_from_the_wheelhouse(small: Small) -> None:
    """As apex of MindSpeed-LLM: what an index has by that name is another project."""
    small.index.add(make_wheel("fused-ops", "0.9"))
    images, wheels = small.root / "images", small.root / "wheels"
    (images / "components/llm.yaml").write_text(LLM)
    (images / "components/own-ops.yaml").write_text(OPS)
    (images / "indexes.yaml").write_text("own-wheels: {urls: [], note: yours}\n")
    edit(small, "  - {name: lib}\n", f"  - {{name: lib}}\n  - {{name: llm, commit: {COMMIT}}}\n")
    for path in (images / "locks/stack").iterdir():
        path.unlink()
    check, image = small("check", "stack"), small("image", "stack")
    for done, text in ((check, check.out), (image, image.err)):
        assert done.code == 3
        assert "take component own-ops into images/profiles/stack.yaml" in text
        assert "fused_ops-0.1+mine-*.whl for Python 3.11 on amd64" in text
    edit(small, "  - {name: lib}\n", "  - {name: lib}\n  - {name: own-ops, version: '0.1'}\n")
    assert small("lock", "stack").code == 0
    image = small("image", "stack")
    assert (image.code, "fused-ops 0.1+mine" in image.err, (small.root / "out").exists()) == (3, True, False)
    wheels.mkdir()
    file, content = make_wheel("fused-ops", "0.1+mine")
    (wheels / file).write_bytes(content)
    assert small("lock", "stack", "--wheelhouse", str(wheels)).code == 0
    assert small.versions()["fused-ops"] == "0.1+mine"
    assert small("check", "stack").code == 0
