"""Effects on the image store: its files, unpacked layers, archives and layouts, images from registries."""
