"""Reads the running host, or a tree of files in its place."""
