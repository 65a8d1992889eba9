"""Patch sets read from folders and plugins, applied to trees by git, ported to other commits, and written."""
