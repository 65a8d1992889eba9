"""What reads the facts, from indexes, git repositories and registries."""
