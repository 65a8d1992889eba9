"""Building an image with `docker buildx bake`: the stream of its events as a state, its view, and failures.

`io/` runs buildx, writes the log and draws the view.
"""
