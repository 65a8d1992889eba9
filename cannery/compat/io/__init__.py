"""What package indexes, and wheels on this host, have for the solver and the rules."""
