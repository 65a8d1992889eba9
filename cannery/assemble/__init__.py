"""Makes the layers of an image directly from its wheels. They have the same bytes as layers that BuildKit makes."""
