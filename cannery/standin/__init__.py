"""The stand-in base: a Debian system in the shape of a CANN image, for machines that cannot get or run CANN.

`tree` is its reference and its files, `stubs` and `elf` libraries that return 0; `io` makes the Debian system, and the
layer on it.
"""
