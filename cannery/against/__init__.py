"""`verify --against`: compare an image that somebody made by hand with itself and with profiles. Nothing in it is run.

`io` reads a few files of the image, `image` makes values of them, `fit` finds packages that do not fit each other,
`compare` finds what differs from a profile's lock, `report` prints both.
"""
