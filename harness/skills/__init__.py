"""Agent Skills: `spec` reads and validates one, `check` runs all checks, `write_skill` writes folders."""
