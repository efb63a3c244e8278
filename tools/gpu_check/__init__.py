"""Checks that need a GPU: pytest files that are not collected by default, run by `make gpu-check`.

What did not run is called `not measured yet`, never passed.
"""
