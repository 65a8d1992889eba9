"""What fits together: the rules that judge a version set by the compatibility table, and the solver over it."""
