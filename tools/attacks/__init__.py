"""The attack suite on sandboxes: `make security`."""
