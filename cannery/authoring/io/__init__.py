"""Read facts from indexes, git repositories and registries."""
