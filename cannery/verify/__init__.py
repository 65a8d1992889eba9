"""Verifies an image: runs the verify script in a container, prints each check as it ends, and stores a pass."""
