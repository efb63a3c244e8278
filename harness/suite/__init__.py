"""The task suite as a whole: what admits a task, and what freezes it."""
