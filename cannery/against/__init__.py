"""A user's own image held against profiles: what was read, what a profile wants, what differs, how near it is."""
