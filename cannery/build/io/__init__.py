"""Effects of building: buildx, the log, the views of builds and transfers, free disk, secrets of the host."""
