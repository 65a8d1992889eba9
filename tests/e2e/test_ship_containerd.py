"""The same ways on an engine that keeps images in containerd's store, as Docker 29 does by default.

There a name may hold several platforms, an image's id is the digest of its manifest or index, and layers are kept as
they came. The engine is one of our own, started for this and ended after it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from cannery.context import read_context
from cannery.engine.own import process as engine_process
from cannery.engine.own.layout import Layout, daemon_config
from cannery.engine.own.network import network_down, network_up, tool_env
from cannery.engine.own.packages import install, installed
from cannery.engine.own.shell import write_wrapper
from tests.e2e.engine_fixtures import ROOT
from tests.e2e.test_ship import (
    registry,
    ship,
    shipyard,
    test_a_bundle_since_holds_what_is_new_and_needs_its_base,
    test_a_bundle_since_the_same_layers_is_a_small_one,
    test_a_changed_bundle_leaves_nothing_on_the_engine,
    test_a_complete_bundle_loads_by_itself_and_by_docker,
    test_a_pushed_tag_does_not_change,
    test_an_image_of_another_architecture_is_handed_on,
    test_image_reuse_pulls_what_is_there,
    test_load_takes_no_file_that_is_not_whole,
    test_push_pull_and_the_moving_tag,
    test_save_and_load,
    test_two_architectures_share_a_tag,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.ship_fixtures import Shipyard

# What is collected here, with this module's `yard`.
__all__ = [
    "registry",
    "ship",
    "test_a_bundle_since_holds_what_is_new_and_needs_its_base",
    "test_a_bundle_since_the_same_layers_is_a_small_one",
    "test_a_changed_bundle_leaves_nothing_on_the_engine",
    "test_a_complete_bundle_loads_by_itself_and_by_docker",
    "test_a_pushed_tag_does_not_change",
    "test_an_image_of_another_architecture_is_handed_on",
    "test_image_reuse_pulls_what_is_there",
    "test_load_takes_no_file_that_is_not_whole",
    "test_push_pull_and_the_moving_tag",
    "test_save_and_load",
    "test_two_architectures_share_a_tag",
]
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of our own engine's client; its packages are fetched where they are not there yet."""
    context = read_context(ROOT)
    layout = Layout.of(context.cache)
    write_wrapper(layout, installed(layout) or install(layout, context.cache, print))
    return layout.bin


@pytest.fixture(scope="module")
def yard(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipyard]:
    folder = tmp_path_factory.mktemp("containerd")
    binaries = installed(Layout.of(read_context(ROOT).cache))
    assert binaries is not None
    layout = Layout.of(folder / "cache")
    layout.root.mkdir(parents=True)
    layout.run.mkdir()
    settings = {"features": {"containerd-snapshotter": True}}
    layout.config.write_text(json.dumps(daemon_config(layout, binaries.proxy, 10**9, {}) | settings))
    env = tool_env(binaries, {"PATH": os.environ["PATH"], "HOME": str(folder)})
    # Without a bridge of its own it would need none, but dockerd then removes docker0, whoever has that.
    network_up(layout, binaries, env, print)
    engine_process.launch((str(binaries.dockerd), "--config-file", str(layout.config)), layout.log, env)
    try:
        for _ in range(600):
            if layout.socket.exists():
                break
            assert engine_process.starting(layout, patience=3), layout.log.read_text()
            time.sleep(0.1)
        # Another cache than the engine's: its host would be taken for the cache's own engine.
        with shipyard(tmp_path_factory.mktemp("shipyard"), layout.host, programs) as found:
            assert "io.containerd.snapshotter.v1" in str(found.client.info()["DriverStatus"])
            yield found
    finally:
        engine_process.end((int((layout.run / "docker.pid").read_text()),), patience=30)
        network_down(layout, binaries, env)
        shutil.rmtree(layout.run)
        shutil.rmtree(layout.root)
