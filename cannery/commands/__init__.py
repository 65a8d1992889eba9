"""The commands: each module reads its arguments, calls the pipeline and prints. `COMMANDS` maps names to functions."""
