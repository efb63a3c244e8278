"""Programs that maintainers run."""
