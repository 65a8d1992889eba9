"""The stand-in base: a Debian system in the shape of a CANN image, for machines that cannot get or run CANN.

`tree` has its reference and its files, `stubs` makes libraries whose functions return 0, and `io` makes the Debian
system and the layer on top.
"""
