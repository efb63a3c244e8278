"""Hostile and honest projects that the judge must tell apart: `make zoo`."""
