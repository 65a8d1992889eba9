"""What `run` reads from this host before it starts a container."""
