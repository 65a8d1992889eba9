"""Data for the solver and the rules from package indexes and from wheels on this host."""
