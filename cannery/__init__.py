"""Cannery: container images for reinforcement learning on Ascend NPUs."""

__version__ = "0.2.0"
