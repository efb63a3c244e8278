"""Asks the system for a way to an index of packages."""

import socket

from ._ops import ops

INDEX = ("192.0.2.80", 443)  # TEST-NET-1 of RFC 5737

try:
    # Connecting a datagram socket sends nothing: it only asks for a route, and nothing is ever sent.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.connect(INDEX)
except OSError as error:
    raise RuntimeError(f"closed: no network ({error})") from None
raise RuntimeError(f"OPEN: there is a way to {INDEX[0]}")


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
