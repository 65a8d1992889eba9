"""What an image holds, shown and compared: `diff`, `sbom` and `report`. Nothing is built for it."""
