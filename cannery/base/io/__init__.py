"""Effects of finding a base."""
