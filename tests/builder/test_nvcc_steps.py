"""nvcc's steps side by side: the same object, messages and exit code as nvcc's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.builder import nvcc_steps
from harness.builder.toolchain import find_toolchain

SCRIPT = [sys.executable, "-I", "-S", str(nvcc_steps.__file__)]

_PLAN = """\
#$ CICC_PATH=BIN
#$ LIBRARIES=  "-Lx"
#$ BIN/g++ -E -x c++ "a.cu" -o "a.cpp4.ii"
#$ BIN/cudafe++ --gen_module_id_file --module_id_file_name "a.module_id" "a.cpp4.ii"
#$ BIN/g++ -D__CUDA_ARCH__=900 -E -x c++ "a.cu" -o "a.cpp1.ii"
#$ "$CICC_PATH/cicc" --module_id_file_name "a.module_id" "a.cpp1.ii"
#$ BIN/ptxas "a.ptx"
#$ BIN/fatbinary "a.cubin"
#$ BIN/g++ -c -x c++ "a.cudafe1.cpp" -o "a.o"
"""
# Every tool notes that it ran and prints its name; `fail-NAME` and `id-NAME` steer it.
_TOOL = """\
#!/bin/sh
name=$(basename "$0")
echo "$name" "$@" >> ran.txt
echo "$name speaks" >&2
case "$*" in *--gen_module_id_file*)
  id=$(echo "$*" | sed 's/.*--module_id_file_name \\([^ ]*\\).*/\\1/'); cat "id-$name" > "$id" ;;
esac
test ! -f "fail-$name" || exit 2
"""
_NVCC = """\
#!/bin/sh
if [ "$1" = --dryrun ]; then cat plan.txt >&2; exit 0; fi
echo "plain nvcc $*"
exit 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a fake nvcc whose tools only talk."""
    for name, text in [("nvcc", _NVCC)] + [
        (n, _TOOL) for n in ("g++", "cudafe++", "cicc", "ptxas", "fatbinary")
    ]:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "plan.txt").write_text(_PLAN.replace("BIN", str(tmp_path)))
    for name in ("cudafe++", "cicc"):
        (tmp_path / f"id-{name}").write_text("_1_a_cu_2")
    return tmp_path


def run(folder: Path) -> tuple[int, str, list[str]]:
    """Exit code, output, and the tools in the order in which they started."""
    done = subprocess.run(
        [*SCRIPT, str(folder / "nvcc"), "a.cu"], cwd=folder, capture_output=True, text=True, check=False
    )
    ran = folder / "ran.txt"
    return done.returncode, done.stdout + done.stderr, ran.read_text().splitlines() if ran.exists() else []


def test_every_step_runs_once_and_speaks_in_nvccs_order(folder):
    """The output does not depend on which steps ran in parallel."""
    code, output, ran = run(folder)
    names = ["g++", "cudafe++", "g++", "cicc", "ptxas", "fatbinary", "g++"]
    assert code == 0 and output == "".join(f"{name} speaks\n" for name in names)
    assert len(ran) == 7 and [line.split()[0] for line in ran[4:]] == names[4:]


def test_another_module_id_than_cudafes_is_not_used(folder):
    """cicc runs again, with the file that cudafe++ wrote, as in nvcc."""
    (folder / "id-cicc").write_text("_1_a_cu_3")
    code, output, ran = run(folder)
    again = [line for line in ran if line.startswith("cicc") and "--gen_module_id_file" not in line]
    assert code == 0 and len(again) == 1 and output.count("cicc speaks") == 1


@pytest.mark.parametrize("tool", ["cudafe++", "cicc", "ptxas"])
def test_the_first_failure_ends_it(tool, folder):
    """Only what nvcc would have printed until then, and the tool's exit code."""
    (folder / f"fail-{tool}").touch()
    code, output, ran = run(folder)
    assert code == 2 and output.splitlines()[-1] == f"{tool} speaks"
    assert not any(line.startswith("fatbinary") for line in ran)
    assert tool != "cudafe++" or "cicc" not in output


def test_a_tool_that_is_killed_is_named(folder):
    """As nvcc names it."""
    (folder / "cicc").write_text("#!/bin/sh\nkill -9 $$\n")
    code, output, _ = run(folder)
    assert code != 0 and "nvcc error   : 'cicc' died due to signal 9" in output


def test_an_unknown_plan_is_left_to_nvcc(folder):
    """Two architectures, for instance."""
    plan = folder / "plan.txt"
    plan.write_text(plan.read_text() + '#$ ptxas "b.ptx"\n')
    assert run(folder) == (3, "plain nvcc a.cu\n", [])


KERNEL = """\
#include <cstdio>
namespace { __global__ void hidden(float* x) { x[threadIdx.x] *= 2; } }
template <typename T> __global__ void shown(T* x) { x[blockIdx.x] += 1; }
void launch(float* x) { hidden<<<1, 32>>>(x); shown<<<1, 32>>>(x); std::puts("x"); }
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [KERNEL, KERNEL.replace("+= 1", "+= y"), KERNEL.replace("std::", "stdd::")])
def test_with_the_real_nvcc(text, tmp_path):
    """Byte for byte the object of plain nvcc; of a wrong file, its words and its exit code."""
    cuda = find_toolchain().cuda
    if cuda is None:
        pytest.skip("needs nvcc (pip install 'liftbench[cuda]')")
    results = []
    for driver in ([], SCRIPT):
        folder = tmp_path / str(len(driver))
        (folder / "keep").mkdir(parents=True)
        (folder / "a.cu").write_text(text)
        command = [str(cuda.nvcc), "-arch=sm_90", "--keep", "--keep-dir", "keep", "-Xcudafe"]
        command += ["--orig_src_path_name", "-Xcudafe", "/liftbench/a.cu", "-c", "a.cu", "-o", "a.o"]
        done = subprocess.run([*driver, *command], cwd=folder, capture_output=True, check=False)
        made = folder / "a.o"
        results.append((done.returncode, done.stdout + done.stderr, made.exists() and made.read_bytes()))
    assert results[0] == results[1]
    assert (results[0][0] == 0) == (text == KERNEL)
