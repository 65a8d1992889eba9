"""The content of images/ as closed models: profiles, components, CANN base lines, compatibility table, chips, hosts.

`io.read.load_catalog` reads the folder and reports all errors at once, each with its file, line and field.
"""
