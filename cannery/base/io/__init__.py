"""Find a base image in registries and on the engine."""
