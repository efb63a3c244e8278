"""What is not done twice: finished builds on disk."""
