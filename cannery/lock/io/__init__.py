"""Queries package indexes, runs uv, reads and writes lock files, and downloads wheels."""
