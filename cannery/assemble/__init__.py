"""Makes the layers of an image straight from its wheels, byte for byte as the build stages make them."""
