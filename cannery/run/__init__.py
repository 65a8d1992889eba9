"""`run`: a container with NPUs as one value, and the forms that start it.

`container` binds a request to a host and writes the docker command, or the box without an engine. `kubernetes` writes a
Pod or Job, `ray` a RayCluster or RayJob. `print` chooses the form, and writes the compose file.
"""
