"""What a host has: its NPUs, driver, users and engine, as values.

`io` reads the running host, or a tree of files that was copied from one; `doctor` judges it and `run` mounts it.
"""
