"""Runs inside the sandbox: loads a project and calls it on the judge's buffers, by `__main__`."""
