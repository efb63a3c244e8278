"""The command line: thin; nothing imports it."""
