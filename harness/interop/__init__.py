"""Grading for other programs: over HTTP, and as tasks of other frameworks."""
