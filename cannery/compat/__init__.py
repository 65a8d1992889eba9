"""What fits what: the compatibility table, the rules that judge a version set by it, and the one solver over it."""
