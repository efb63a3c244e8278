"""Builds kernel-builder projects: build.py is the way in, build_toml.py the schema, toolchain.py the tools.

Owns: everything between a project's files and a loadable package. Does not own: what is done with it.
"""
