"""The exact files of a recipe: the request to the resolver, its result, and the lock file.

A lock is requirements text with hashes, one file for each profile, Python and architecture.
"""
