"""Reads patch sets from folders and plugins, applies them with git, ports them to other commits, and writes them."""
