"""What the harness itself costs: `make bench`."""
