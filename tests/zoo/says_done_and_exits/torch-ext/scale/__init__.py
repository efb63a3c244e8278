"""Sends the worker's own `done` itself, without having written anything, and leaves."""

import os
import socket


def scale(out, x, *, alpha):
    for name in os.listdir("/proc/self/fd"):
        try:
            channel = socket.socket(fileno=os.dup(int(name)))
            channel.send(b"D")
        except OSError:
            continue
    os._exit(0)
