"""Effects of building: buildx, the log, the view of a build, free disk, secrets of the host."""
