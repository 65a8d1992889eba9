"""`lint-run`: finds mistakes in the users' own `docker run` commands and files.

`command` reads the `docker run` lines of a script. `files` reads compose files, Kubernetes manifests and workflows.
Both return `Container` values, and the functions in `rules` check them.
"""
