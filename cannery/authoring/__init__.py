"""The next stack by commands: a new profile, the facts of a release or commit, a new CANN line."""
