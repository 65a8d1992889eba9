"""The commands of build.py: each module glues core and edge, and prints. `COMMANDS` maps names to functions."""
