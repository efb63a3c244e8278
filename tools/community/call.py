"""Calls a published project's functions on the emulated GPU and compares them with PyTorch: one JSON line.

    python -I -S call.py PROJECT PACKAGE_FOLDER SITE_DIRECTORY

Runs in a sandbox, with the libraries of LIFTBENCH_EMULATED_GPU loaded before torch.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

sys.path += [str(Path(__file__).resolve().parents[2]), *sys.argv[3:]]
for _library in filter(None, os.environ.get("LIFTBENCH_EMULATED_GPU", "").split(":")):
    ctypes.CDLL(_library, mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402

from tools.community import pointwise, sequences, sparse, vision  # noqa: E402
from tools.community.operands import BF16, F16, F32, F64, Tensor  # noqa: E402

for _name in ("triton", "triton.language"):  # a package may import it; nothing that uses it is called
    sys.modules.setdefault(_name, MagicMock())

SINGLE = {F64: 1e-12, F32: 1e-5}
"""Errors that are allowed, relative to the larger of 1 and the value; a call multiplies them."""
NARROW = {F16: 1e-2, BF16: 2e-2}
"""The same for outputs of narrow dtypes, whose projects round intermediate values too: ten and five units in
the last place."""
FUNCTIONS = {
    "activation": pointwise.activation,
    "causal-conv1d": sequences.causal_conv1d,
    "cv-utils": vision.cv_utils,
    "deformable-detr": vision.deformable_detr,
    "mra": sparse.mra,
    "relu": pointwise.relu,
    "rotary": pointwise.rotary,
    "rwkv": sequences.rwkv,
    "yoso": sparse.yoso,
}


def error_of(got: Tensor, want: Tensor) -> float:
    """The largest difference relative to the larger of 1 and the value; infinite where one is not finite."""
    got = torch.ops.liftbench_emulated.host(got)
    if got.shape != want.shape:
        return float("inf")
    gap = ((got.double() - want.double()).abs() / want.double().abs().clamp(min=1)).nan_to_num(torch.inf)
    return float(gap.max()) if gap.numel() else 0.0


def main() -> None:
    """Prints {calls, largest_error, wrong: [labels], raised}."""
    project, package = sys.argv[1], Path(sys.argv[2]).resolve()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name = project.replace("-", "_")
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None
    found: dict[str, Any] = {"calls": 0, "largest_error": 0.0, "wrong": [], "raised": None}
    try:
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        for label, got, want, factor in FUNCTIONS[project](module):
            found["calls"] += 1
            for one, other in zip(got, want, strict=True):
                error = error_of(one, other)
                found["largest_error"] = max(found["largest_error"], error)
                if not error <= NARROW.get(one.dtype, factor * SINGLE.get(one.dtype, 0.0)):
                    found["wrong"].append(f"{label}: {error:.3g}")
    except Exception as error:  # noqa: BLE001 - told to the caller
        found["raised"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()


if __name__ == "__main__":
    main()
