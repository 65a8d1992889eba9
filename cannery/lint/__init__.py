"""`lint-run`: finds mistakes in containers that users start by themselves.

`command` reads a script's `docker run` lines, `files` reads compose files, manifests and workflows; both
become a `Container`, which the functions in `rules` judge.
"""
