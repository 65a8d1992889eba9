"""build.py killed at random moments of a small image's life: what is there afterwards is whole, or made again.

The short version of `python -m tests.e2e.kills`, which does it to quickstart on an engine of its own. A cache of its
own here too, so that what is taken away is missed by no other test.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest

from cannery.context import read_context
from tests.e2e.engine_fixtures import ROOT, Cannery, small_checkout
from tests.e2e.kills import PATIENCE, Bench, How, build_scenes
from tests.images.test_lines import profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

# No system package and no torch: seconds for a build.
COMPONENTS = ("pip", "numpy")


@pytest.fixture(scope="session")
def early() -> None:
    """These tests need no other image: none is begun beside them."""


@pytest.fixture(scope="module")
def bench(cannery: Cannery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder, context = tmp_path_factory.mktemp("kills"), read_context(ROOT)
    for path in (*context.cache.glob("rootfs/*.tar"), *context.cache.glob("wheels/??/*/*.whl")):
        target = folder / "cache" / path.relative_to(context.cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("DOCKER_HOST", cannery.engine.host)
        text = profile_text(str(context.arch), COMPONENTS)
        checkout = small_checkout(cannery, folder / "checkout", "killed", text)
        bench = Bench(checkout, folder / "cache", "killed", folder, random.Random(6))
        bench.undisturbed()
        yield bench
        bench.forget(*bench.references)


def test_a_build_that_is_killed_goes_on(bench: Bench) -> None:
    scenes = {scene.name: scene for scene in build_scenes(bench)}
    for name, how in (
        ("image, wheels to fetch", How.TREE),
        ("image --no-cache", How.LEADER),
        ("image --no-cache", How.TREE),
        ("image --verify-again", How.TREE),
    ):
        row = bench.turn(scenes[name], how)
        assert row.again == 0, row
        assert row.faults == (), row


def test_two_builds_at_once_give_one_image(bench: Bench) -> None:
    said = [bench.folder / f"{name}.err" for name in ("one", "other")]
    runs = [bench.start((*bench.image, "--verify-again"), path) for path in said]
    assert [run.wait(PATIENCE) for run in runs] == [0, 0]
    assert "another run works in killed-" in "".join(path.read_text() for path in said)
    assert {json.loads(path.with_suffix(".out").read_text())["id"] for path in said} == {bench.table["id"]}
    assert bench.faults(1.0) == []
