"""Looks up newer releases, and writes an edited profile with its locks."""
