"""Ask package indexes, run uv, read and write lock files, download wheels."""
