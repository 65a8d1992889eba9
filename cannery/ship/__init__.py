"""Images on their way to other hosts: push and pull by a registry, archives and delta bundles as files.

`standalone/load.py` goes along in a bundle and needs no Cannery.
"""
