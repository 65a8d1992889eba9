"""Effects of shipping: the registry, archives and bundles on disk."""
