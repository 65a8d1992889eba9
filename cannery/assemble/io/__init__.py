"""The effects of `cannery.assemble`: wheels are read, byte code is compiled by a Python of the image's version."""
