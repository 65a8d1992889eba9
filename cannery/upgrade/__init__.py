"""What is newer than a lock, and what an upgrade would change (`outdated`)."""
