"""What names load_inline is imported once where there is a compiler."""

import socket

from torch.utils.cpp_extension import load_inline

SERVER = ("192.0.2.80", 443)  # TEST-NET-1 of RFC 5737

try:
    # Connecting a datagram socket sends nothing: it only asks for a route, and nothing is ever sent.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.connect(SERVER)
except OSError as error:
    # The builder leaves every exception but this one to the worker, which would import it again.
    raise SystemExit(f"error: closed: no network ({error})") from None
raise SystemExit(f"error: OPEN: there is a way to {SERVER[0]}")


def scale(out, x, *, alpha):
    load_inline("fetched", cpp_sources="", functions=["scale"]).scale(out, x, alpha)
