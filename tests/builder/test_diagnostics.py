"""What a failed build says: kinds and places, from recorded output, from real compilers, from rubbish."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.builder.build import Built, build
from harness.builder.compiler_output import TREE, Step, failed_steps
from harness.builder.diagnostics import diagnose, header_advice, load_failure, refusal
from harness.builder.toolchain import Toolchain
from harness.outcome import Cause
from harness.records import Diagnostic, Finding, Target
from tests.fakes.projects import FILES, project
from tests.fakes.sandbox import FakeSandbox, exit_facts

BINDING = FILES["torch-ext/torch_binding.cpp"]
OBJECT = "obj/kernels/a.cu/unit.o"


def place(one: Diagnostic) -> str:
    """`syntax kernels/a.cu:3:10`, without what is not known."""
    parts = [one.file, one.line, one.column]
    return f"{one.kind} {':'.join(str(part) for part in parts if part is not None)}".strip()


def said(text: str, files: Mapping[str, str] | None = None) -> str:
    """The places of the diagnostics of one failed step."""
    return ", ".join(map(place, told(text, files)))


def told(text: str, files: Mapping[str, str] | None = None, output: str = OBJECT) -> tuple[Diagnostic, ...]:
    """The diagnostics of one failed step of a project with kernels/a.cu."""
    known = {"kernels/a.cu": "", "kernels/a.h": "", "torch-ext/torch_binding.cpp": BINDING, **(files or {})}
    return diagnose([Step(output, 1, text)], known, {OBJECT: "kernels/a.cu", "obj/b": "b.cpp"})


TORCH_INT = """\
In file included from torch/include/torch/library.h:62,
                 from torch-ext/torch_binding.cpp:1:
torch/include/ATen/core/op_registration/infer_schema.h: In instantiation of 'constexpr int check()':
torch/include/ATen/core/op_registration/infer_schema.h:51:28:   required from 'constexpr int f()'
torch/include/torch/library.h:730:23:   required from 'torch::Library& torch::Library::impl(Name) &'
torch-ext/torch_binding.cpp:17:11:   required from here
torch/include/ATen/core/op_registration/infer_schema.h:38:21: error: static assertion failed: INVALID TYPE
   38 |  static_assert(std::conjunction_v<
      |                ~~~~~^~~~~~~~~~~~~~
torch/include/ATen/core/op_registration/infer_schema.h:38:21: note: 'x' evaluates to false
"""
AVX = """\
In file included from /usr/lib/gcc/x86_64-linux-gnu/12/include/immintrin.h:49,
                 from kernels/a.cu:1:
/usr/lib/gcc/x86_64-linux-gnu/12/include/avx512fintrin.h:12598:1: error: inlining failed in call to \
'always_inline' '__m512 _mm512_add_ps(__m512, __m512)': target specific option mismatch
12598 | _mm512_add_ps (__m512 __A, __m512 __B)
      | ^~~~~~~~~~~~~
kernels/a.cu:2:42: note: called from here
"""
EDG_HEADER = """\
cuda/include/cccl/cub/util_type.cuh(152): error: excessive recursion at instantiation of class "Log2<-1>"
      enum { VALUE = Log2<N, (CURRENT_VAL >> 1), COUNT + 1>::VALUE };
                     ^
          detected during:
            instantiation of class "Log2<N, C, K> [with N=-1]" at line 152
            instantiation of class "WarpReduceSmem<T> [with T=int]" at line 90 of cuda/include/cccl/cub/w.cuh
            instantiation of class "cub::BlockReduce<T, B> [with T=int, B=-1]" at line 3 of kernels/a.cu

1 error detected in the compilation of "kernels/a.cu".
"""
LD_TWICE = """\
/usr/bin/ld: obj/kernels/two.cpp/unit.o: in function `f()':
two.cpp:(.text+0x0): multiple definition of `f()'; \
obj/kernels/fill.cpp/unit.o:fill.cpp:(.text+0x0): first defined here
collect2: error: ld returned 1 exit status
"""
# Output -> kind and place of each diagnostic.
FORMATS = {
    "the first of each file": (
        "kernels/a.cu:3:1: error: e\nkernels/a.cu:4:1: error: f\nkernels/a.h:1:1: error: g\n",
        "syntax kernels/a.cu:3:1, syntax kernels/a.h:1:1"),
    "warnings and notes are none": (
        "kernels/a.cu:1:1: warning: w\nkernels/a.cu:2:1: note: n\nkernels/a.cu(3): warning #177-D: v\n"
        "kernels/a.cu(4): remark #1: r\nkernels/a.h:9:2: error: e\n",
        "syntax kernels/a.h:9:2"),
    "a registration that torch's header refuses": (TORCH_INT,
        "binding_mismatch torch-ext/torch_binding.cpp:17:11"),
    "an intrinsic without its -m flag": (AVX, "wrong_arch kernels/a.cu:2:42"),
    "nvcc": (
        'kernels/a.cu(2): error: identifier "y" is undefined\n  p[0] = y;\n         ^\n\n1 error detected',
        "syntax kernels/a.cu:2"),
    "nvcc in a header of CUDA's": (EDG_HEADER, "syntax kernels/a.cu:3"),
    "a header": (
        "kernels/a.cu:1:10: fatal error: nothere.h: No such file or directory\ncompilation terminated.\n",
        "missing_header kernels/a.cu:1:10"),
    "#error about the architecture": ('kernels/a.cu(3): error: #error directive: "needs sm_100"',
        "wrong_arch kernels/a.cu:3"),
    "ptxas": (
        "ptxas obj/kernels/a.cu/a.ptx, line 21; error   : Instruction 'wgmma.fence' not supported on "
        ".target 'sm_90'\nptxas fatal   : Ptx assembly aborted due to errors",
        "wrong_arch kernels/a.cu"),
    "ptxas, a device function that is not there": ("ptxas fatal   : Unresolved extern function '_Z1gv'",
        "linker kernels/a.cu"),
    "nvcc's driver": ("nvcc fatal   : Unsupported gpu architecture 'sm_91'", "wrong_arch kernels/a.cu"),
    "an unknown flag": ("g++: error: unrecognized command-line option '-mfoo'", "flag_refused kernels/a.cu"),
    "memory, nvcc": ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "out_of_memory kernels/a.cu"),
    "the assembler": ("kernels/a.cu: Assembler messages:\nkernels/a.cu:1: Error: no such instruction: `x'",
        "syntax kernels/a.cu:1"),
    "a redeclared binding": (
        "torch-ext/torch_binding.cpp:8:5: error: ambiguating new declaration of 'int f(float*)'",
        "binding_mismatch torch-ext/torch_binding.cpp:8:5"),
    "a forgotten semicolon in a registration": (
        "torch-ext/torch_binding.cpp:12:50: error: expected ';' before '}' token",
        "syntax torch-ext/torch_binding.cpp:12:50"),
    "no error line": ("all is lost", "other kernels/a.cu"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_formats(name):
    """Each tool's way of saying it becomes one kind and one place in the project."""
    text, expected = FORMATS[name]
    assert said(text) == expected


def test_a_link_error_names_the_file_that_defines_it_again():
    """ld names objects; each is one source file."""
    files = {"kernels/two.cpp": "", "kernels/fill.cpp": ""}
    (one,) = told(LD_TWICE, files, "lib/x.abi3.so")
    assert (one.kind, one.file, one.line) == ("linker", "kernels/two.cpp", None)
    assert one.message.startswith("multiple definition of `f()'; kernels/fill.cpp")
    (other,) = told("/usr/bin/ld: cannot find -lfoo: No such file or directory\n", files, "lib/x.abi3.so")
    assert (other.kind, other.file) == ("linker", None) and "cannot find -lfoo" in other.message
    (silent,) = told("nothing", files, "lib/x.abi3.so")
    assert silent.kind == "linker"


def test_the_line_is_the_projects_own_text():
    """nvcc prints lines with macros expanded; what the student wrote is shown instead."""
    files = {"kernels/a.cu": "// one\n__global__ void k() { y; }\n"}
    assert told("kernels/a.cu(2): error: e\n  expanded\n", files)[0].source == "__global__ void k() { y; }"
    assert told("kernels/a.cu:99:1: error: e\n   99 | gone\n", files)[0].source is None


def test_an_instruction_is_found_where_it_alone_is_written():
    """ptxas names lines of a generated file; the project's line only when there is no doubt."""
    text = "ptxas x.ptx, line 21; error   : Instruction 'wgmma.fence' not supported on .target 'sm_90'"
    line = 'asm volatile("wgmma.fence.sync.aligned;");'
    assert said(text, {"kernels/a.cu": f"\n\n{line}"}) == "wrong_arch kernels/a.cu:3"
    assert said(text, {"kernels/a.h": f"\n{line}"}) == "wrong_arch kernels/a.h:2"
    both = {"kernels/a.h": line, "kernels/b.h": line}
    assert said(text, both) == "wrong_arch kernels/a.cu"


def test_a_flag_that_the_compiler_refuses_points_into_build_toml():
    """The line that holds all that the driver quotes."""
    files = {"build.toml": '[torch]\nsrc = []\ncxx-flags = ["-O3", "-march=zzz"]\n'}
    text = "cc1plus: error: bad value 'zzz' for '-march=' switch"
    (one,) = told(text, files)
    assert (one.kind, one.file, one.line) == ("flag_refused", "build.toml", 3)
    assert one.source == 'cxx-flags = ["-O3", "-march=zzz"]'


TWO = 'src = ["kernels/fill.cpp", "kernels/two.cpp"'
TWO_FILES = project({"kernels/two.cpp": "int g( {}\n"}, toml={'src = ["kernels/fill.cpp"': TWO})


def block(source: str, text: str, code: int = 1) -> str:
    """What ninja prints of a step that failed."""
    return f"[1/4] g++ source/{source}\nFAILED: [code={code}] obj/{source}/unit.o \n/usr/bin/g++ -c\n{text}\n"


def built(facts: object, tools: Toolchain, tmp_path: Path, files: dict[str, bytes] | None = None) -> Built:
    """Build the project of two kernels with a sandbox that only pretends."""
    sandbox = FakeSandbox(facts, files)  # type: ignore[arg-type]
    return build(TWO_FILES, "cpu", sandbox=sandbox, toolchain=tools, cache=tmp_path / "cache")


def test_the_first_in_link_order_is_named_first(toolchain, tmp_path):
    """With several jobs steps end in any order; the finding does not depend on it."""
    one = block("kernels/fill.cpp", "source/kernels/fill.cpp:1:1: error: first")
    two = block("kernels/two.cpp", "source/kernels/two.cpp:1:8: error: second")
    for index, text in enumerate((one + two, two + one)):
        result = built(exit_facts("nonzero", text, 1), toolchain, tmp_path / str(index)).result
        assert result.finding is not None
        assert result.finding.message.startswith("kernels/fill.cpp:1:1: error: first")
        assert [d.file for d in result.diagnostics] == ["kernels/fill.cpp", "kernels/two.cpp"]
        assert result.diagnostics[1].source == "int g( {}"


def test_what_another_step_printed_is_not_mixed_in(toolchain):
    """Warnings of a step that succeeded follow its status line."""
    text = block("a.cpp", "a.cpp:1:1: error: e") + "[2/4] g++ b.cpp\nb.cpp:1:1: error: not really\n"
    (step,) = failed_steps(text, toolchain)
    assert "not really" not in step.text and step.message == "a.cpp:1:1: error: e"


def test_a_compile_error_outweighs_a_limit(toolchain, tmp_path):
    """Ninja keeps going: a file that does not compile is the finding, whatever the others ran into."""
    text = block("kernels/two.cpp", "source/kernels/two.cpp:1:8: error: e")
    result = built(exit_facts("wall_timeout", text), toolchain, tmp_path).result
    assert result.finding is not None and result.finding.cause is Cause.COMPILE_ERROR
    assert [d.kind for d in result.diagnostics] == ["syntax", "timeout"]
    killed = block("kernels/two.cpp", "g++: fatal error: Killed signal terminated program cc1plus")
    result = built(exit_facts("wall_timeout", killed), toolchain, tmp_path / "b").result
    assert result.finding is not None and result.finding.cause is Cause.BUILD_TIMEOUT


@pytest.mark.parametrize(
    ("status", "kind"), [("wall_timeout", "timeout"), ("oom", "out_of_memory"), ("disk_limit", "other")]
)
def test_a_stopped_build_names_what_was_not_finished(status, kind, toolchain, tmp_path):
    """Ninja's log knows what was made; the rest was running or waiting."""
    log = b"# ninja log v7\n0\t1\t1\tobj/torch-ext/torch_binding.cpp/unit.o\tf\n"
    log += b"0\t1\t1\tobj/kernels/two.cpp/unit.o\tf\nrubbish\n"
    result = built(exit_facts(status), toolchain, tmp_path, {f"{TREE}/.ninja_log": log}).result
    assert result.finding is not None
    (one,) = result.diagnostics
    assert (one.kind, one.file) == (kind, "kernels/fill.cpp")
    assert one.message == result.finding.message
    assert one.message.endswith("not finished: kernels/fill.cpp")
    blind = built(exit_facts(status), toolchain, tmp_path / "b").result.diagnostics[0]
    assert blind.file is None and "torch_binding.cpp, kernels/fill.cpp, kernels/two.cpp" in blind.message


def test_a_missing_header_comes_with_advice(toolchain, tmp_path):
    """In the record, and in the finding for the first file."""
    error = "source/kernels/fill.cpp:1:10: fatal error: cuda_runtime.h: No such file or directory"
    result = built(exit_facts("nonzero", block("kernels/fill.cpp", error), 1), toolchain, tmp_path).result
    (one,) = result.diagnostics
    assert one.kind == "missing_header" and "no CUDA headers" in (one.advice or "")
    assert result.finding is not None and result.finding.message.endswith(one.advice or "-")


def test_advice_is_looked_up(tmp_path):
    """In the project, then in torch; else it says that there is nothing."""
    assert "`depends`" in header_advice("cutlass/gemm.h", {}, "cuda", None)
    header = tmp_path / "include/torch/csrc/stable/library.h"
    header.parent.mkdir(parents=True)
    header.touch()
    files = {"kernels/extra.h": "", "kernels/fill.h": ""}
    assert "kernels/extra.h is in the project" in header_advice("extra.h", files, "cpu", tmp_path)
    torch = header_advice("torch/stable/library.h", files, "cpu", tmp_path)
    assert torch == "torch has no torch/stable/library.h; it has <torch/csrc/stable/library.h>"
    assert "no file of that name" in header_advice("zzz/*.h", files, "cuda", tmp_path)


TOML = """\
[general]
name = "x"
versoin = 1

[kernel.a]
backend = "cuda"
cuda-capabilities = ["8.0"]
cuda-flags = ["-O3"]
src = ["a.cu"]

[kernel.b]
cxx-flags = [
  "-O3",
  "-fplugin=x.so",
]
cuda-flags = ["-Xcompiler", "-Wl,-rpath=/"]
src = ["b.cu"]
"""
FILES_OF = {"build.toml": TOML, "b.cu": '\n#include "b.h"\n', "torch-ext/x/__init__.py": "def f(:\n"}
UPSTREAM = """\
build.toml is not valid: invalid string, expected `"`, `'` (at line 3, column 11)
TOML parse error at line 3, column 11
  |
3 | versoin = 1
  |           ^
invalid string
expected `"`, `'`"""
REFUSALS = {
    "a flag": (Cause.REFUSED_FLAG, 'cxx-flags of [kernel.b]: "-fplugin=x.so" is refused: it loads',
        "flag_refused build.toml:14"),
    "a table that is not there": (Cause.REFUSED_FLAG, 'cuda-flags of [kernel.z]: "-q" is refused',
        "flag_refused build.toml"),
    "upstream's parser": (Cause.BAD_BUILD_TOML, UPSTREAM, "build_toml build.toml:3"),
    "an unknown key": (Cause.BAD_BUILD_TOML,
        "build.toml is not valid: Unknown field versoin. Expected one of name, version",
        "build_toml build.toml:3"),
    "our advice": (Cause.BAD_BUILD_TOML,
        "build.toml is not valid: line 2: write `edition = 5`\nkernel-builder says: did not match v4",
        "build_toml build.toml:2"),
    "a line that is not there": (Cause.BAD_BUILD_TOML,
        "build.toml is not valid: Expected newline (at line 999, column 1)", "build_toml build.toml"),
    "no kernel for this GPU": (Cause.NO_BACKEND,
        'no kernel of this project runs on sm_90: cuda-capabilities give 8.0; add "9.0"',
        "wrong_arch build.toml:7"),
    "a listed file that is missing": (Cause.BAD_LAYOUT,
        'src of [kernel.b]: "b.cu" does not exist in the project', "layout build.toml:17"),
    "Python": (Cause.BAD_LAYOUT, "torch-ext/x/__init__.py:1: SyntaxError: invalid syntax",
        "syntax torch-ext/x/__init__.py:1"),
    "a missing package": (Cause.BAD_LAYOUT,
        "torch-ext/x/__init__.py is missing: the package's name is general.name", "layout build.toml"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_point_into_the_project(name):
    """Kind, file and line; the line is quoted as written, and never guessed."""
    cause, message, expected = REFUSALS[name]
    one = refusal(Finding(cause=cause, message=message), FILES_OF)
    assert place(one).removesuffix(f":{one.column}" if one.column else "") == expected
    if one.line is not None and one.file is not None:
        assert one.source == FILES_OF[one.file].split("\n")[one.line - 1]
    assert one.message and "\n" not in one.message


MISMATCH = """\
its output (untrusted): terminate called after throwing an instance of 'c10::Error'
  what():  Inferred operator schema for a C++ kernel function doesn't match the expected function schema.
  operator: _fill_it::fill
  expected schema: _fill_it::fill(Tensor($0! -> ) out, float value) -> ()
    registered at source/torch-ext/torch_binding.cpp:12
  inferred schema: (Tensor _0, int _1) -> ()
  reason: Type mismatch in argument 2: float vs int.
"""
HERE = """\
  what():
unknown type specifier. Common valid schema types include Tensor, SymInt, int:
fill(Tensor! out, float value) -> ()
                  ~~~~~ <--- HERE
"""


def test_a_failed_import_points_at_the_binding():
    """Undefined symbols, schemas that do not parse, functions that do not fit their schema."""
    (one,) = load_failure("ImportError: x.so: undefined symbol: _Z11fill_floatsPflf", FILES)
    assert (one.kind, one.file, one.line) == ("binding_mismatch", "torch-ext/torch_binding.cpp", 8)
    assert "(fill_floats)" in one.message
    for written in (
        "demo::fill_floats(float*, long)",
        "demo::fill_floats<float>(float*)",
        "fill_floats: called as x",
    ):
        (same,) = load_failure(f"undefined symbol: {written}", FILES)
        assert (same.file, same.line) == (one.file, one.line), written
    (two,) = load_failure(MISMATCH, FILES)
    assert (two.file, two.line) == ("torch-ext/torch_binding.cpp", 12)
    assert two.message == "Type mismatch in argument 2: float vs int."
    (three,) = load_failure(HERE, FILES)
    assert (three.kind, three.line) == ("binding_mismatch", 12)
    (four,) = load_failure("aoti_torch_library_def(lib_, schema) API call failed at library.h", FILES)
    assert (four.kind, four.file) == ("binding_mismatch", None)
    assert load_failure("ModuleNotFoundError: No module named 'x'", FILES) == ()


QUICK = {'"torch-ext/torch_binding.cpp", ': ""}
WGMMA = '// wgmma\n__global__ void k() {\n  asm volatile("wgmma.fence.sync.aligned;"); }\n'
CPU_SRC, CUDA_SRC = 'src = ["kernels/fill.cpp"', 'src = ["kernels/fill.cu"'
Case = tuple[dict[str, str | None], dict[str, str], Target, str]
REAL: dict[str, Case] = {
    "an intrinsic without its flag": (
        {'kernels/fill.cpp': '#include <immintrin.h>\n__m512 f(__m512 a) { return _mm512_add_ps(a, a); }\n'},
        QUICK, "cpu", "wrong_arch kernels/fill.cpp:2"),
    "wgmma without 9.0a": ({'kernels/fill.cu': WGMMA}, QUICK, "cuda", "wrong_arch kernels/fill.cu:3"),
    "nvcc's front end": ({'kernels/fill.cu': '__global__ void k(float* p) {\n  p[0] = undefined_name;\n}\n'},
        QUICK, "cuda", "syntax kernels/fill.cu:2"),
    "an architecture that nvcc does not know": ({},
        QUICK | {CUDA_SRC: f'cuda-flags = ["-arch=sm_91"]\n{CUDA_SRC}'}, "cuda", "wrong_arch build.toml:20"),
    "a flag that g++ does not know": ({}, QUICK | {CPU_SRC: f'cxx-flags = ["-mfoo"]\n{CPU_SRC}'}, "cpu",
        "flag_refused build.toml:15"),
    "a symbol that is there twice": ({'kernels/fill.cpp': 'int f;\n', 'kernels/two.cpp': 'int f;\n'},
        QUICK | {CPU_SRC: TWO}, "cpu", "linker kernels/two.cpp"),
    "a registered function that is not there": (
        {'torch-ext/torch_binding.cpp': BINDING.replace('TORCH_BOX(&fill)', 'TORCH_BOX(&fil)')}, {}, "cpu",
        "binding_mismatch torch-ext/torch_binding.cpp:17"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_compilers(name, really, tmp_path):
    """The kind and the project's line, from this machine's own tools; the line is quoted as written."""
    changes, toml, target, expected = REAL[name]
    given = project(changes, toml=toml)
    result = really(given, target, tmp_path).result
    found = (place(d.model_copy(update={"column": None})) for d in result.diagnostics)
    assert ", ".join(found) == expected, result.finding
    for one in result.diagnostics:
        if one.line is not None:
            text = next(f.text for f in given.files if f.path == one.file)
            assert one.source == text.split("\n")[one.line - 1].rstrip()
