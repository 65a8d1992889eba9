"""The same ways on an engine that keeps images in containerd's store, as Docker 29 does by default.

There a name may hold several platforms, an image's id is the digest of its manifest or index, and layers are kept as
they came. The engine is one of tools/engine.py, started for this and removed after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.engine_fixtures import containerd_engine
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
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipyard]:
    with (
        containerd_engine(tmp_path_factory.mktemp("containerd")) as layout,
        shipyard(tmp_path_factory.mktemp("shipyard"), layout.host) as found,
    ):
        assert "io.containerd.snapshotter.v1" in str(found.client.info()["DriverStatus"])
        yield found
