"""Engine tests build and run real images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.engine_fixtures import cannery, device_nodes, image, release_stack

if TYPE_CHECKING:
    from tests.e2e.engine_fixtures import Early, Image

__all__ = ["cannery", "device_nodes", "image", "release_stack"]


@pytest.fixture(scope="session", autouse=True)
def early(image: Image, release_stack: Early | None) -> None:
    """Begin the long build once the first one is done, and go on with other tests meanwhile."""
