import torch
from scale import scale


def test_scale():
    x = torch.randn(16, 16)
    out = torch.empty_like(x)
    scale(out, x, alpha=2.0)
    torch.testing.assert_close(out, 2 * x)
