"""Grading: build, load, check, time, and the admission of tasks."""
