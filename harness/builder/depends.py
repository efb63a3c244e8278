"""What a project asks for beside torch: Python packages and other kernels.

As `kernel-builder create-pyproject`, which resolves the names of every backend at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.builder.config.schema import General, KernelDependency
from harness.builder.refusal import Refused
from harness.outcome import Cause
from harness.records import Target

# Upstream's kernels-data/src/python_dependencies.json: name -> module to import, by table.
_KNOWN: Final[dict[str, dict[str, str]]] = {
    "general": {"einops": "einops", "helion": "helion", "tvm-ffi": "tvm_ffi"},
    "general.cuda": {"nvidia-cutlass-dsl": "cutlass"},
    "general.tpu": {},
    "general.xpu": {"onednn": ""},
}


def _listed(general: General) -> dict[str, tuple[str, ...]]:
    """Names by table. Upstream reads [general.neuron] too but never resolves its names."""
    tables = {"general.cuda": general.cuda, "general.tpu": general.tpu, "general.xpu": general.xpu}
    return {"general": general.python_depends} | {
        where: () if table is None else table.python_depends for where, table in tables.items()
    }


def check_python_depends(general: General) -> None:
    """Raises Refused for a name that kernel-builder does not know in that table."""
    for where, names in _listed(general).items():
        for name in names:
            if name in _KNOWN[where]:
                continue
            elsewhere = [table for table, known in _KNOWN.items() if name in known]
            if elsewhere:
                hint = f"it belongs under [{elsewhere[0]}]"
            else:
                hint = f"known: {', '.join(sorted(_KNOWN[where])) or 'none'}"
            message = f'python-depends of [{where}]: "{name[:80]}" is unknown to kernel-builder here; {hint}'
            raise Refused(message, Cause.BAD_BUILD_TOML)


def python_depends(general: General, target: Target) -> list[str]:
    """The names that the target's variant carries, in upstream's order."""
    listed = _listed(general)
    return [*listed["general"], *listed.get(f"general.{target}", ())]


def kernel_depends(general: General, target: Target) -> list[KernelDependency]:
    """The other kernels that the target's variant carries, in upstream's order."""
    own = general.cuda.kernel_depends if target == "cuda" and general.cuda is not None else ()
    return [*general.kernel_depends, *own]


def not_installed(general: General, target: Target, site: Path) -> list[str]:
    """Names of python-depends whose module is not in `site`, the folder that has torch."""
    modules = {name: module for known in _KNOWN.values() for name, module in known.items()}
    absent = []
    for name in python_depends(general, target):
        module = site / modules.get(name, "")
        if modules.get(name) and not (module.is_dir() or module.with_suffix(".py").is_file()):
            absent.append(name)
    return absent
