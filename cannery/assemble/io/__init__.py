"""The effects of `cannery.assemble`: reads wheels, compiles byte code with the image's Python, writes layers."""
