"""What is newer than a lock, and which of it fits together (`outdated`)."""
