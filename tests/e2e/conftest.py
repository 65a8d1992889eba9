"""Engine tests build and run real images."""

from tests.e2e.engine_fixtures import cannery, device_nodes, image

__all__ = ["cannery", "device_nodes", "image"]
