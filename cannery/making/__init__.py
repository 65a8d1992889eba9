"""Makes the image of a plan: BuildKit or a sandbox makes the foundation, this host or BuildKit makes the rest."""
