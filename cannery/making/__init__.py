"""Makes the image of a plan: the foundation by BuildKit or in a sandbox, the rest on this host or by BuildKit."""
