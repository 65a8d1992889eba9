"""Effects of boxes: their folders, whether this host can make them, build stages in them."""
