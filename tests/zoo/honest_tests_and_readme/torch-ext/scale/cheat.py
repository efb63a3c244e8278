"""A cheat sheet: names of the operators in this package."""

NAMES = ("scale",)
