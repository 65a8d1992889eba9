"""Effects that all folders share: files, processes, threads, lock files, HTTP, retries, the host's pip settings."""
