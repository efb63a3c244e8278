import logging
import warnings

from ._ops import ops

_log = logging.getLogger(__name__)
warnings.warn("scale: the interface may change", FutureWarning, stacklevel=2)
_log.warning("scale: no tuned configuration for this machine")


def scale(out, x, *, alpha):
    if x.numel() % 8:
        _log.warning("scale: %d elements are no multiple of 8", x.numel())
    warnings.warn("scale: untuned", UserWarning, stacklevel=2)
    ops.scale(out, x, alpha)
