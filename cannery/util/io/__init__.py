"""Effects that every folder shares: files, processes, threads, lock files, HTTP, retries, the host's pip settings."""
