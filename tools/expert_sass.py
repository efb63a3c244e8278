"""Builds the CUDA experts and writes kernels_ref/STATUS.md: `python -m tools.expert_sass`.

Everything in the table is counted in compiled code. What only a GPU can tell is called not measured.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final

from harness.cli.options import make_build_setup
from harness.files import write_atomically
from harness.grading.setup import BuildSetup
from harness.records import DeviceKernel
from harness.report.evidence import short_name
from harness.suite.catalogue import read_project

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "kernels_ref/STATUS.md"
BEFORE: Final = "334e5ae"
"""The commit with which experts are compared."""
NOT_MEASURED: Final = "not measured"
_HEAD: Final = """# The CUDA experts as compiled

Written by `python -m tools.expert_sass`; do not edit it by hand. **Nothing here was measured on a GPU**:
these are counts in the code that nvcc makes for sm_90, before (commit {before}) and now. A row is a kernel
family. Its instructions, loops counted once, and widths (bits of global loads; TMA and cp.async are no such
loads) are those of the variant whose loads are widest on average, of several the longest: a guess at the
hottest. Where that variant is new, the most similar one before is named. Spills are the most bytes per thread
stored / loaded of any variant. Shorter is not always faster: unrolled loops are longer.

Kernels that spill: {spilling}

| expert | kernel | instructions | spills | widths of loads | speed |
|---|---|---|---|---|---|
"""
Kernels = Mapping[str, Sequence[DeviceKernel]]
"""Kernels by expert, such as `l1/gemm`."""


def experts(root: Path) -> list[str]:
    """The experts below root/kernels_ref that have CUDA kernels, such as `l1/gemm`."""
    places = sorted((root / "kernels_ref").glob("*/*/build.toml"))
    return [str(one.parent.relative_to(root / "kernels_ref")) for one in places if "cuda" in one.read_text()]


def kernels_of(root: Path, setup: BuildSetup) -> dict[str, tuple[DeviceKernel, ...]]:
    """Builds every expert below `root`. Raises RuntimeError, with its name, for one that does not build."""
    found: dict[str, tuple[DeviceKernel, ...]] = {}
    for name in experts(root):
        result = setup.build(read_project(root / "kernels_ref" / name), "cuda", wall_s=1800.0).result
        if not result.ok:
            raise RuntimeError(f"{name} does not build: {result.finding}")
        found[name] = result.kernels or ()
    return found


def page(before: Kernels, now: Kernels) -> str:
    """STATUS.md."""
    spilling = [
        f"{name}: {', '.join(f'`{short_name(kernel.name)}`' for kernel in kernels if _spills(kernel))}"
        for name, kernels in now.items()
        if any(map(_spills, kernels))
    ]
    head = _HEAD.format(before=BEFORE, spilling="; ".join(spilling) or "none.")
    return head + "".join(
        f"{line}\n" for name in now for line in _rows(name, before.get(name, ()), now[name])
    )


def _rows(name: str, before: Sequence[DeviceKernel], now: Sequence[DeviceKernel]) -> Iterator[str]:
    old, new = _families(before), _families(now)
    for family in sorted(new):
        kernel, were = max(new[family], key=_standing), old.get(family, [])
        shown = short_name(kernel.name)
        was = max(were, key=partial(_likeness, shown), default=None)
        same = was is None or short_name(was.name) == shown
        title = f"`{shown}`" if was is None or same else f"`{shown}`, before `{short_name(was.name)}`"
        figures = [
            _change(None if was is None else _count(was), _count(kernel)),
            _change(_spilled(were) if were else None, _spilled(new[family])),
            _change(None if was is None else _widths(was), _widths(kernel)),
        ]
        yield f"| {name} | {title} | {' | '.join(figures)} | {NOT_MEASURED} |"


def _families(kernels: Sequence[DeviceKernel]) -> dict[str, list[DeviceKernel]]:
    """The variants of each family, which differ by template arguments."""
    found: defaultdict[str, list[DeviceKernel]] = defaultdict(list)
    for kernel in kernels:
        found[re.split(r"[<(]", short_name(kernel.name))[0]].append(kernel)
    return found


def _likeness(shown: str, kernel: DeviceKernel) -> tuple[int, tuple[float, int, str]]:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(shown, short_name(kernel.name), strict=False))
    return len(list(same)), _standing(kernel)


def _standing(kernel: DeviceKernel) -> tuple[float, int, str]:
    counts = kernel.instructions or {}
    loads = {bits: counts[f"LDG.{bits}"] for bits in _loads(kernel)}
    mean = sum(bits * count for bits, count in loads.items()) / max(sum(loads.values()), 1)
    return mean, counts.get("all", 0), kernel.name


def _loads(kernel: DeviceKernel) -> list[int]:
    """Bits of its global loads, widest first."""
    names = [name.split(".")[1] for name in kernel.instructions or {} if name.startswith("LDG.")]
    return sorted(map(int, names), reverse=True)


def _spills(kernel: DeviceKernel) -> bool:
    return bool(kernel.spill_store_bytes or kernel.spill_load_bytes)


def _count(kernel: DeviceKernel) -> str:
    return str((kernel.instructions or {}).get("all", "?"))


def _spilled(kernels: Sequence[DeviceKernel]) -> str:
    stored, loaded = (
        max(getattr(kernel, f"spill_{what}_bytes") or 0 for kernel in kernels) for what in ("store", "load")
    )
    return f"{stored} / {loaded}" if stored or loaded else "none"


def _widths(kernel: DeviceKernel) -> str:
    return ", ".join(map(str, _loads(kernel))) or "-"


def _change(was: str | None, now: str) -> str:
    return now if was == now else f"{'new' if was is None else was} -> {now}"


def main() -> None:
    """Compares the committed experts of `BEFORE` with those in the working tree."""
    archive = ["git", "archive", BEFORE, "kernels_ref"]
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
    setup = make_build_setup("auto", None, "cuda")
    with tempfile.TemporaryDirectory() as folder, closing(setup):
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        before, now = kernels_of(Path(folder), setup), kernels_of(ROOT, setup)
    write_atomically(PAGE, page(before, now))
    print(f"kernels_ref/{PAGE.name}")


if __name__ == "__main__":
    main()
