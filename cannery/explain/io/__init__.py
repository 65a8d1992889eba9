"""Queries the indexes about a failed lock, and tries similar sets."""
