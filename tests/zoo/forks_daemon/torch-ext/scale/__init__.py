"""A child tries to leave the process group, computes after the call has returned, and stays on."""

import os
import time

from ._ops import ops


def scale(out, x, *, alpha):
    if os.fork():
        return
    try:
        os.setsid()
    except OSError:
        pass
    if os.fork():
        os._exit(0)
    time.sleep(0.5)
    ops.scale(out, x, alpha)
    os.execv("/bin/sleep", ["liftbench-zoo-@TOKEN@", "600"])
