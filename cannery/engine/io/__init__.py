"""Effects on engines and registries: the engine's API and containers, the registry's API, docker's logins."""
