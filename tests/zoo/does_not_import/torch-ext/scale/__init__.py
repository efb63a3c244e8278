import no_such_module


def scale(out, x, *, alpha):
    no_such_module.scale(out, x, alpha)
