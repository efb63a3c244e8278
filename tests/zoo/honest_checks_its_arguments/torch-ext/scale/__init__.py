import torch

from ._ops import ops


def _range(tensor):
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def scale(out, x, *, alpha):
    if type(x) is not torch.Tensor or type(out) is not torch.Tensor:
        raise TypeError("scale takes plain tensors")
    if out.shape != x.shape or out.dtype is not torch.float32 or x.dtype is not torch.float32:
        raise ValueError(f"scale: {tuple(out.shape)} {out.dtype} from {tuple(x.shape)} {x.dtype}")
    (low, high), (first, last) = _range(out), _range(x)
    if low < last and first < high and low != first:
        raise ValueError("scale: out and x overlap")
    if not (x.is_contiguous() and out.is_contiguous()):
        raise ValueError("scale: not contiguous")
    ops.scale(out, x, float(alpha))
