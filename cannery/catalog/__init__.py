"""What images/ says, as closed models: profiles, components, CANN base lines, the compatibility table, chips and hosts.

`io.read.load_catalog` reads the folder; errors name file, line and field, all at once.
"""
