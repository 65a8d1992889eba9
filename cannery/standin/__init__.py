"""The stand-in base: a Debian system in the shape of a CANN image, for machines that cannot get or run CANN.

`spec` is its reference and configuration, `tree` its files, `stubs` and `elf` libraries that return 0; `io` makes the
Debian system and loads the image into the engine.
"""
