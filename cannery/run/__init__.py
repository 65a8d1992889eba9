"""`run`: a container with NPUs as one value, and the forms that start it.

`container` binds a request to a host; `docker`, `kubernetes` and `ray` write it as a command, a Pod or Job, and a
RayCluster; `print` writes the compose file and chooses. `mounts`, `folders`, `network` and `user` are parts.
"""
