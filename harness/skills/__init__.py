"""Agent Skills: reading, checking, writing, installing, and their overlap with tasks."""
