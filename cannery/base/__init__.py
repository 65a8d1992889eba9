"""The image that a build is on: found in a registry or on the engine, and compared with what is recorded of it."""
