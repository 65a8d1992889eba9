"""Explains in terms of the profile why no set of versions works, and suggests similar sets that do."""
