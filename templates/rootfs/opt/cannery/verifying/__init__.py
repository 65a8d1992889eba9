"""What the verify script beside this package is made of. Standard library only; Python 3.10 and later.

Nothing here uses the network, and nothing is written into the image. Each family of checks is a module; `checks` has
the table of them all.
"""
