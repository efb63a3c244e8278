from ._ops import ops

print("scale 1.0: hello", flush=True)


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
