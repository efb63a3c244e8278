"""Lone surrogates are text in Python and JSON, and cannot be written as UTF-8."""


def scale(out, x, *, alpha):
    raise RuntimeError("\udcff\ud800" * (10 << 20))
