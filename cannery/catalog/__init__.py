"""The content of images/ as closed models: profiles, components, CANN base lines, compatibility table, chips, hosts.

`io.read.load_catalog` reads the folder; errors name file, line and field, all at once.
"""
