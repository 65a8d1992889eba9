"""Compatibility: the rules that check a version set against the compatibility table, and the solver over that table."""
