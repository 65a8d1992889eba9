"""Checks on this host before `run` starts a container."""
