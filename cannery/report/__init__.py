"""Shows and compares the content of images: `diff`, `sbom` and `report`. Nothing is built for it."""
