"""The ordered layers of an image, each with the digest of its inputs; the manifest; what patches each source.

A plan assumes no engine and reads no file.
"""
