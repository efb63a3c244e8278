def scale(out, x, *, alpha):
    raise RuntimeError("not today")
