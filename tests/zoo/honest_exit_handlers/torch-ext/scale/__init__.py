import atexit
import weakref

from ._ops import ops


class _Library:
    calls = 0


_library = _Library()


def _statistics():
    print(f"scale: {_Library.calls} calls", flush=True)


atexit.register(_statistics)
weakref.finalize(_library, print, "scale: gone")


def scale(out, x, *, alpha):
    _Library.calls += 1
    ops.scale(out, x, alpha)
