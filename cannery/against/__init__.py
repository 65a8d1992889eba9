"""`verify --against`: check an image that was built by hand, and compare it with profiles. No package is run.

`io` runs the image's own Python. `compare` finds packages that do not fit together and differences from a profile's
lock, and prints both.
"""
