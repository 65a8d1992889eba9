"""Patch sets: where they are, how they are read, what they change, and edits that plugins make to other trees.

Git applies them (`io`). The result of a patch is a value with its changes or problems.
"""
