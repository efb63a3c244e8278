"""What is not done twice: builds, objects and precompiled headers on disk."""
