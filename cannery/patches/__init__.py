"""Patch sets: which there are, how they are read, what they change, and the edits that plugins make to other trees.

Git applies them (`io`). What became of a patch is a value, with its problems in words.
"""
