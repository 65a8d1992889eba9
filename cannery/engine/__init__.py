"""Docker engines and container registries: finding an engine, what both report, and the one client for each."""
