"""A universal project, Python only, that answers the throw-away task `scale` with torch ops."""

from __future__ import annotations

from harness.records import Project, ProjectFile

BUILD_TOML = """\
[general]
name = "scale"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""

_INIT = """\
import torch

from ._ops import add_op_namespace_prefix
from .numbers import FACTOR


@torch.library.custom_op(add_op_namespace_prefix("scale"), mutates_args=("out",))
def _scale(out: torch.Tensor, x: torch.Tensor, alpha: float) -> None:
    torch.mul(x, alpha * FACTOR, out=out)


def scale(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    _scale(out, x, alpha)
"""

FILES = {
    "build.toml": BUILD_TOML,
    "torch-ext/scale/__init__.py": _INIT,
    "torch-ext/scale/numbers.py": "FACTOR = 1.0\n",
    "torch-ext/scale/numbers.pyi": "FACTOR: float\n",
    "torch-ext/scale/notes.txt": "not copied\n",
}


def universal(changes: dict[str, str | None] | None = None) -> Project:
    """The project; `changes` replace or add files, None removes one."""
    files = {path: text for path, text in {**FILES, **(changes or {})}.items() if text is not None}
    return Project(files=tuple(ProjectFile(path=p, text=files[p]) for p in sorted(files)))
