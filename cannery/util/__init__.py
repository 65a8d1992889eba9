"""General helpers: URLs, secrets in text, failure messages, image references, YAML."""
