"""Cannery: container images for reinforcement learning on Ascend NPUs."""

__version__ = "0.1.0"
