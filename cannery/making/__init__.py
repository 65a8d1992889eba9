"""How an image is made of a plan: its foundation by an engine or in boxes, its layers by this host, or by BuildKit."""
