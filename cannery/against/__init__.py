"""`verify --against`: compare an image that somebody made by hand with itself and with profiles. No package is run.

`io` asks the image's own Python, `image` makes values of that, `fit` finds packages that do not fit each other,
`compare` finds what differs from a profile's lock, `report` prints both.
"""
