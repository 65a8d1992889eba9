"""Looks up newer releases."""
