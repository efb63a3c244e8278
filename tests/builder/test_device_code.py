"""Device code facts: validation of the reader's answer, and (slow) results of real tools."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from harness.builder.build import build
from harness.builder.built_library import read_device_code
from harness.builder.compiler_output import TREE
from harness.builder.cubins import CLASSES, MAX_KERNELS
from harness.builder.toolchain import Toolchain, find_toolchain
from harness.records import DeviceKernel
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.projects import fake_toolchain, project
from tests.fakes.sandbox import FakeSandbox, exit_facts

KERNEL = {
    "name": "f(float*)",
    "architecture": "sm_90a",
    "registers": 32,
    "shared_bytes": 0,
    "stack_bytes": 8,
    "spill_store_bytes": 4,
    "spill_load_bytes": 4,
    "instructions": {"LDG.128": 2, "other": 5, "all": 7},
}


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """With cuobjdump and nvdisasm in nvcc's folder."""
    return fake_toolchain(tmp_path).model_copy(update={"disassembler": tmp_path / "cuda/bin"})


def answering(answer: object) -> FakeSandbox:
    """A sandbox whose reader left `answer`."""
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return FakeSandbox(exit_facts("ok", "", 0), {"kernels.json": text})


def test_the_library_is_read_in_the_sandbox_only(toolchain, tmp_path):
    """One build job without a device gets the library and our script, and is closed."""
    sandbox = answering({"kernels": [KERNEL], "found": 1, "notes": []})
    code = read_device_code(b"\x7fELF", toolchain, sandbox)
    assert code.kernels == (DeviceKernel.model_validate(KERNEL),) and code.notes == ()
    (job,) = sandbox.jobs
    assert job.role == "build" and job.device is None and job.limits.wall_s == 60
    assert sorted(job.inputs) == ["cubins.py", "library.so"] and sandbox.processes[0].closed
    assert list(job.argv)[1:4] == ["-I", "-S", "{scratch}/cubins.py"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        {"kernels": [KERNEL] * (MAX_KERNELS + 1), "found": 1, "notes": []},
        {"kernels": [KERNEL | {"registers": -1}], "found": 1, "notes": []},
        {"kernels": [KERNEL | {"name": "x" * 301}], "found": 1, "notes": []},
        {"kernels": [KERNEL | {"instructions": {"all": 7}}], "found": 1, "notes": []},
        {"kernels": [KERNEL | {"instructions": {"PWNED": 7, "all": 7}}], "found": 1, "notes": []},
        b" " * ((1 << 20) + 1),
    ],
)
def test_an_answer_that_makes_no_sense_is_not_believed(answer, toolchain):
    """The reader read hostile bytes: an invalid answer means not measured, never a failed build."""
    code = read_device_code(b"", toolchain, answering(answer))
    assert code.kernels is None and code.notes[0].startswith("compiled kernels not measured: ")


@pytest.mark.parametrize("status", ["wall_timeout", "nonzero", "sandbox_error"])
def test_a_reader_that_fails_is_a_note(status, toolchain):
    """The note names the reason."""
    code = read_device_code(b"", toolchain, FakeSandbox(exit_facts(status, "it broke")))
    assert code.kernels is None
    assert code.notes == (f"compiled kernels not measured: the reader ended with {status}: it broke",)


def test_a_build_without_figures_is_a_success(toolchain, tmp_path):
    """A reader that leaves no answer adds a warning."""
    library = {f"{TREE}/lib/_fill_it_cuda_{project().digest[:7]}.abi3.so": b"\x7fELF"}
    sandbox = FakeSandbox(exit_facts("ok", "", 0), library)
    result = build(project(), "cuda", sandbox=sandbox, toolchain=toolchain, cache=tmp_path).result
    assert result.ok and result.kernels is None and "not measured" in result.warnings[-1]


SOURCE = """
#include <cstdint>
__global__ void multiply(float* out, const uint64_t* tiles) {
  __shared__ __align__(128) float tile[512];
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(tiles[0]), "l"(tiles[1]));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) tile[threadIdx.x * 4 + i] = d[i];
  __syncthreads();
  out[threadIdx.x] = tile[511 - threadIdx.x];
}
__global__ void copy(float4* out, const float4* in) { out[threadIdx.x] = in[threadIdx.x]; }
template <int N>
__global__ void __launch_bounds__(1024) crowded(float* out, const float* in) {
  float v[N];
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = in[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = v[i] * v[(i * 7 + 1) % N] + v[(i * 11 + 3) % N];
#pragma unroll
  for (int i = 0; i < N; ++i) out[i * 1024 + threadIdx.x] = v[i];
}
template __global__ void crowded<80>(float*, const float*);
"""
_PTXAS = re.compile(
    r"Function properties for (\S+)\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads\n.*?Used (\d+) registers(?:.*?, (\d+) bytes smem)?"
)


@pytest.mark.slow
def test_real_figures_are_those_of_ptxas(tmp_path):
    """A wgmma kernel, a vectorised copy and a spilling one: ptxas -v and the library agree."""
    real = find_toolchain()
    if real.cuda is None or real.gxx is None:
        pytest.skip("no nvcc or no g++ found")
    if real.disassembler is None:
        pytest.skip("no cuobjdump and nvdisasm found (pip install 'liftbench[cuda]')")
    (tmp_path / "k.cu").write_text(SOURCE)
    command = [str(real.cuda.nvcc), "-ccbin", str(real.gxx), "-gencode", "arch=compute_90a,code=sm_90a"]
    command += ["-Xptxas=-v", "-Xcompiler=-fPIC", "-shared", "-cudart=none", "k.cu", "-o", "k.so"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = {m[1]: [int(n or 0) for n in m.groups()[1:]] for m in _PTXAS.finditer(done.stderr)}
    code = read_device_code((tmp_path / "k.so").read_bytes(), real, SandboxPool(LocalBackend()))
    assert code.notes == () and code.kernels is not None and len(code.kernels) == len(said) == 3
    for kernel in code.kernels:
        word = next(w for w in ("multiply", "copy", "crowded") if w in kernel.name)
        mangled = next(name for name in said if word in name)
        figures = [kernel.stack_bytes, kernel.spill_store_bytes, kernel.spill_load_bytes]
        assert [*figures, kernel.registers, kernel.shared_bytes] == said[mangled], kernel.name
        assert kernel.architecture == "sm_90a" and set(kernel.instructions or {}) <= set(CLASSES)
    crowded, multiply, copy = code.kernels
    assert crowded.name == "void crowded<80>(float*, float const*)" and crowded.spill_store_bytes
    assert (crowded.instructions or {})["STL"] > 0 and (crowded.instructions or {})["FFMA"] == 80
    assert (multiply.instructions or {})["HGMMA"] == 1 and multiply.shared_bytes == 2048
    assert (copy.instructions or {})["LDG.128"] == (copy.instructions or {})["STG.128"] == 1
