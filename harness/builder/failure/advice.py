"""What to do about a header that was not found.

Nothing is advised that was not looked up.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.records import Target

_CUDA: Final = re.compile(
    r"(cuda|cooperative_groups|cub/|thrust/|mma\.h|nvtx|ATen/cuda/|c10/cuda/|torch/csrc/inductor/aoti_torch/c/shim_cuda)"
)
_CUTLASS: Final = re.compile(r"(cutlass|cute)/")
_NAMED: Final = 3


def header_advice(header: str, files: Mapping[str, str], target: Target, torch_root: Path | None) -> str:
    """One line on `header`, which a compiler did not find; `files`: the whole project."""
    name = header.rpartition("/")[2]
    same = sorted(path for path in files if path.rpartition("/")[2] == name)
    if same:
        advice = f"{same[0]} is in the project: is it listed in a `src` of build.toml, and its folder"
        return f"{advice} in `include`?"
    if _CUTLASS.match(header):
        return 'CUTLASS is a dependency: name it in the kernel\'s `depends`, such as "cutlass_3_6"'
    if target == "cpu" and _CUDA.match(header):
        return 'the cpu target has no CUDA headers: only a kernel with `backend = "cuda"` may include them'
    elsewhere = _in_torch(header, torch_root)
    if elsewhere:
        return f"torch has no {header}; it has {', '.join(elsewhere)}"
    headers = [path for path in files if path.rpartition("/")[2].rpartition(".")[2][:1] in {"h", "c", "i"}]
    near = difflib.get_close_matches(header, headers, n=1, cutoff=0.6)
    hint = f" (is {near[0]} meant?)" if near else ""
    return f"no file of that name is in the project{hint}, in torch, in CUDA or in the C++ library"


def _in_torch(header: str, torch_root: Path | None) -> list[str]:
    """Headers of torch's with that file name, spelled as they are included, the most alike first."""
    name = header.rpartition("/")[2]
    if torch_root is None or not re.fullmatch(r"[\w.+-]+", name):
        return []
    root = torch_root / "include"
    found = [path.relative_to(root).as_posix() for path in root.rglob(name)]
    found.sort(key=lambda path: (-difflib.SequenceMatcher(None, header, path).ratio(), path))
    return [f"<{path}>" for path in found[:_NAMED]]
