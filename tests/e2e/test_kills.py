"""build.py killed at random moments of a small image's life: what is there afterwards is whole, or made again.

The short version of `python -m tests.e2e.kills`, which does it to quickstart on an engine of its own. A cache of its
own here too, so that what is taken away is missed by no other test.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from cannery.edge.context import read_context
from cannery.edge.engine_layout import Layout
from tests.e2e.engine_fixtures import ROOT, Cannery, small_checkout
from tests.e2e.kills import Bench, How, build_scenes
from tests.images.test_lines import profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

# No system package and no torch: seconds for a build.
COMPONENTS = ("pip", "numpy")


@pytest.fixture(scope="session")
def early() -> None:
    """These tests need no other image: none is begun beside them."""


@pytest.fixture
def bench(cannery: Cannery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    context = read_context(ROOT)
    cache = tmp_path / "cache"
    for path in (*context.cache.glob("rootfs/*.tar"), *context.cache.glob("wheels/??/*/*.whl")):
        target = cache / path.relative_to(context.cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
    if cannery.engine.owned:
        monkeypatch.setenv("PATH", f"{Layout.of(context.cache).bin}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", cannery.engine.host)
    text = profile_text(str(context.arch), COMPONENTS)
    checkout = small_checkout(cannery, tmp_path / "checkout", "killed", text)
    (tmp_path / "bench").mkdir()
    bench = Bench(checkout, cache, "killed", tmp_path / "bench", random.Random(6))
    bench.undisturbed()
    yield bench
    bench.forget(*bench.references)


def test_a_build_that_is_killed_goes_on(bench: Bench) -> None:
    scenes = {scene.name: scene for scene in build_scenes(bench)}
    for name, how in (
        ("image, wheels to fetch", How.TREE),
        ("image --no-cache", How.LEADER),
        ("image --no-cache", How.TREE),
        ("image --verify-again", How.LEADER),
        ("image --verify-again", How.TREE),
    ):
        row = bench.turn(scenes[name], how)
        assert row.again == 0, row
        assert row.faults == (), row
