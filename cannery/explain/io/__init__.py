"""Asks the indexes about a failed lock, and tries sets near it."""
