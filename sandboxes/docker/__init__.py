"""The Docker backend: images, containers, and what is left of them."""
