"""build.toml: its schema, whether it is valid, and what its author meant."""
