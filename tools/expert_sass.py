"""Builds the CUDA experts and writes kernels_ref/STATUS.md: `python -m tools.expert_sass`.

Everything in the table is counted in compiled code. What only a GPU can tell is called not measured.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final

from harness.builder.build import Built
from harness.cli.options import make_build_setup
from harness.files import write_atomically
from harness.grading.setup import BuildSetup
from harness.records import DeviceKernel
from harness.report.evidence import short_name
from harness.suite.catalogue import read_project
from tools.spill_loops import of_library

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

## Kernels that spill

Bytes per thread, each instruction counted once. In loops: those instructions that can be executed again,
in an outer loop or an inner one. `python -m tools.expert_sass --spills` writes this table alone again.

| expert | kernel | stored / loaded | in loops |
|---|---|---|---|
{spilling}
## All kernels

| expert | kernel | instructions | spills | widths of loads | speed |
|---|---|---|---|---|---|
"""
_TABLE: Final = "| expert | kernel | stored / loaded | in loops |\n|---|---|---|---|\n"
Kernels = Mapping[str, Sequence[DeviceKernel]]
"""Kernels by expert, such as `l1/gemm`."""
Looped = Mapping[str, Mapping[str, tuple[int, int]]]
"""By expert and kernel: bytes stored and loaded by spills in loops."""


def experts(root: Path) -> list[str]:
    """The experts below root/kernels_ref that have CUDA kernels, such as `l1/gemm`."""
    places = sorted((root / "kernels_ref").glob("*/*/build.toml"))
    return [str(one.parent.relative_to(root / "kernels_ref")) for one in places if "cuda" in one.read_text()]


def built(root: Path, setup: BuildSetup, names: Sequence[str]) -> dict[str, Built]:
    """Builds experts below `root`. Raises RuntimeError, with its name, for one that does not build."""
    found = {}
    for name in names:
        found[name] = setup.build(read_project(root / "kernels_ref" / name), "cuda", wall_s=1800.0)
        if not found[name].result.ok:
            raise RuntimeError(f"{name} does not build: {found[name].result.finding}")
    return found


def kernels_of(made: Mapping[str, Built]) -> dict[str, tuple[DeviceKernel, ...]]:
    """What was compiled."""
    return {name: one.result.kernels or () for name, one in made.items()}


def looped_of(made: Mapping[str, Built], setup: BuildSetup) -> Looped:
    """Of the experts that spill. Raises RuntimeError without a disassembler."""
    tools = setup.toolchain.disassembler
    if tools is None:
        raise RuntimeError("no cuobjdump and nvdisasm found")
    return {
        name: of_library(next(one.package.glob("*.abi3.so")), tools)
        for name, one in made.items()
        if one.package is not None and any(map(_spills, one.result.kernels or ()))
    }


def spill_rows(now: Kernels, looped: Looped) -> str:
    """A line for each kernel that spills."""
    return "".join(
        f"| {name} | `{short_name(kernel.name)}` | {_spilled([kernel])} "
        f"| {_pair(looped[name].get(kernel.name))} |\n"
        for name, kernels in now.items()
        for kernel in kernels
        if _spills(kernel)
    )


def page(before: Kernels, now: Kernels, looped: Looped) -> str:
    """STATUS.md."""
    head = _HEAD.format(before=BEFORE, spilling=spill_rows(now, looped))
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
    return _pair((stored, loaded))


def _pair(moved: tuple[int, int] | None) -> str:
    return "?" if moved is None else f"{moved[0]} / {moved[1]}" if any(moved) else "none"


def _widths(kernel: DeviceKernel) -> str:
    return ", ".join(map(str, _loads(kernel))) or "-"


def _change(was: str | None, now: str) -> str:
    return now if was == now else f"{'new' if was is None else was} -> {now}"


def spills_alone(text: str, setup: BuildSetup) -> str:
    """The page with a new table of spills, of the experts that are in it."""
    start, end = text.index(_TABLE) + len(_TABLE), text.index("\n## All kernels")
    names = dict.fromkeys(re.findall(r"^\| (\S+) ", text[start:end], re.MULTILINE))
    made = built(ROOT, setup, list(names))
    return text[:start] + spill_rows(kernels_of(made), looped_of(made, setup)) + text[end:]


def main() -> None:
    """Compares the committed experts of `BEFORE` with those in the working tree."""
    setup = make_build_setup("auto", None, "cuda")
    with tempfile.TemporaryDirectory() as folder, closing(setup):
        if sys.argv[1:] == ["--spills"]:
            text = spills_alone(PAGE.read_text(encoding="utf-8"), setup)
        else:
            archive = ["git", "archive", BEFORE, "kernels_ref"]
            packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                tar.extractall(folder, filter="data")
            before = built(Path(folder), setup, experts(Path(folder)))
            now = built(ROOT, setup, experts(ROOT))
            text = page(kernels_of(before), kernels_of(now), looped_of(now, setup))
    write_atomically(PAGE, text)
    print(f"kernels_ref/{PAGE.name}")


if __name__ == "__main__":
    main()
