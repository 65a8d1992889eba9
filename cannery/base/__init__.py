"""The base image: found in a registry or on the engine, and compared with its record in images/bases/."""
