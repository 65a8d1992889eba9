"""Locks made and kept: package indexes asked, uv run, lock files read and written, wheels downloaded."""
