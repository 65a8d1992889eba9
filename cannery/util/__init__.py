"""Helpers without a subject of their own: URLs, secrets in text, failure texts, image references, YAML."""
