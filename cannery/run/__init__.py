"""`run`: a container with NPUs as one value, and the forms that start it.

`container` binds a request to a host, and writes the docker command, or the box where no engine is; `kubernetes` and
`ray` write a Pod or Job, and a RayCluster or RayJob; `print` writes the compose file and chooses.
"""
