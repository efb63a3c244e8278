import importlib

_kernel = None


def scale(out, x, *, alpha):
    global _kernel
    if _kernel is None:
        _kernel = importlib.import_module(".kernels.fastest", __name__).run
    _kernel(out, x, alpha)
