"""The exact files of a recipe: what the resolver is asked, how its answer is read, checked, written and read again.

A lock is requirements text with hashes, one file for each profile, Python and architecture.
"""
