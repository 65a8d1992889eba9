"""The image store of this host: images that no engine is needed for, below `<cache>/images`."""
