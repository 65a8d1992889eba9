"""`run`: a container with NPUs as one value, and the forms that start it.

`container` binds a request to a host; `docker`, `compose`, `kubernetes` and `ray` write it as a command, a compose
file, a Pod or Job, and a RayCluster; `print` chooses among them. `mounts`, `folders`, `network` and `user` are parts.
"""
