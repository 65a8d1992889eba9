"""A profile bound to one target: which components at which versions, on which base, with which environment."""
