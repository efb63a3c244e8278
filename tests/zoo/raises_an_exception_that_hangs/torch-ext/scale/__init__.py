"""Whoever prints it waits for ever."""

import time


class Endless(Exception):
    def __str__(self):
        time.sleep(3600)
        return "never"


def scale(out, x, *, alpha):
    raise Endless
