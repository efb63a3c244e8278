"""Builds kernel-builder projects into loadable packages."""
