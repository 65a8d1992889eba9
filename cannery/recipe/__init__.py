"""A profile bound to one target: its components and versions, base and environment."""
