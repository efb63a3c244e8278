"""Runs single instructions on the translator's output: one compiled kernel, one row of inputs per thread.

The machine is the smallest that runs straight-line code: addresses are host addresses, nothing is checked.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.device.emulated.codegen import translate
from harness.device.emulated.kernels import compile_kernel
from harness.device.emulated.ptx import SIZES, Module

_DRIVER = r"""

namespace emulated {
void* access_slow(Thread&, uint64_t address, unsigned, Space, Site, bool) { return (void*)address; }
void* shared_access(Thread&, uint32_t, unsigned, Site, bool, const void*) { return nullptr; }
void step_slow(Thread&, Site) {}
}
extern "C" __attribute__((visibility("default"))) void run_lanes(uint64_t in, uint64_t out, int count) {
  const KernelInfo* kernel = &emulated_kernel;
  static uint8_t arena[64];
  Block block{};
  block.arena = arena;
  block.arena_size = sizeof arena;
  Grid grid{};
  Range* ranges = new Range[kernel->site_count + 1]();
  for (int i = 0; i < count; i++) {
    Thread thread{};
    thread.tid[0] = i;
    thread.block = &block;
    thread.grid = &grid;
    thread.ranges = ranges;
    uint64_t parameters[] = {in, out};
    kernel->entry(thread, (const uint8_t*)parameters);
  }
  delete[] ranges;
}
"""

SLOTS = 5


@dataclass(frozen=True)
class Case:
    """One instruction: `text` has operands d, e (a second destination), a, b, c, f of the given types."""

    text: str
    result: str
    inputs: tuple[str, ...]
    second: str = ""


def case(text: str, result: str, *inputs: str, second: str = "") -> Case:
    """A case by position."""
    return Case(text, result, inputs, second)


def _memory_type(type: str) -> str:
    return {"pred": "u8"}.get(type, f"b{8 * SIZES[type]}")


def module_of(cases: list[Case]) -> str:
    """PTX of one kernel with all cases, each in a block of its own."""
    lines = [
        ".version 9.0\n.target sm_90a\n.address_size 64",
        ".visible .entry lanes(.param .u64 in, .param .u64 out) {",
        ".reg .b32 %row; .reg .b64 %in, %out, %step;",
        "mov.u32 %row, %tid.x; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];",
        f"mul.wide.u32 %step, %row, {8 * SLOTS * len(cases)}; add.s64 %in, %in, %step;",
        f"mul.wide.u32 %step, %row, {16 * len(cases)}; add.s64 %out, %out, %step;",
    ]
    for number, one in enumerate(cases):
        lines.append("{ .reg .pred %p; .reg .b16 %narrow;")
        for slot, (name, type) in enumerate(zip("abcf", one.inputs, strict=False)):
            place = f"[%in+{8 * (SLOTS * number + slot)}]"
            if type == "pred":
                lines.append(
                    f".reg .pred {name}; ld.global.u8 %narrow, {place}; setp.ne.u16 {name}, %narrow, 0;"
                )
            else:
                register = "b16" if SIZES[type] == 1 else _memory_type(type)
                lines.append(f".reg .{register} {name}; ld.global.{_memory_type(type)} {name}, {place};")
        results = [("d", one.result)] + ([("e", one.second)] if one.second else [])
        for name, type in results:
            register = "pred" if type == "pred" else "b16" if SIZES[type] == 1 else _memory_type(type)
            lines.append(f".reg .{register} {name};")
        lines.append(one.text + ";")
        for slot, (name, type) in enumerate(results):
            place = f"[%out+{16 * number + 8 * slot}]"
            if type == "pred":
                lines.append(f"selp.u16 %narrow, 1, 0, {name}; st.global.u8 {place}, %narrow;")
            else:
                lines.append(f"st.global.{_memory_type(type)} {place}, {name};")
        lines.append("}")
    return "\n".join([*lines, "ret;", "}"])


class Lanes:
    """Compiles and runs cases; libraries lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, name: str, cases: list[Case], inputs: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """(rows, cases, 2) words of results for (rows, cases, SLOTS) words of inputs."""
        path = self.folder / f"{name}.so"
        compile_kernel(translate(Module(module_of(cases)), "lanes") + _DRIVER, path)
        inputs = np.ascontiguousarray(inputs, dtype=np.uint64)
        assert inputs.shape[1:] == (len(cases), SLOTS)
        out = np.zeros((len(inputs), len(cases), 2), dtype=np.uint64)
        library = ctypes.CDLL(str(path))
        library.run_lanes(ctypes.c_uint64(inputs.ctypes.data), ctypes.c_uint64(out.ctypes.data), len(inputs))
        return out
