"""`verify --against`: compare an image that somebody made by hand with itself and with profiles. No package is run.

`io` asks the image's own Python; `compare` makes values of the answer, finds what does not fit and what differs from a
profile's lock, and prints both.
"""
