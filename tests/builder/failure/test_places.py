"""Refusals and failed imports: the line of the project that they are about."""

from __future__ import annotations

import pytest

from harness.builder.diagnostics import load_failure, refusal
from harness.outcome import Cause
from harness.records import Finding
from tests.fakes.projects import FILES

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
REFUSALS: dict[str, tuple[Cause, str, tuple[str, str | None, int | None]]] = {
    "a flag": (
        Cause.REFUSED_FLAG,
        'cxx-flags of [kernel.b]: "-fplugin=x.so" is refused: it loads',
        ("flag_refused", "build.toml", 14),
    ),
    "a flag in two words": (
        Cause.REFUSED_FLAG,
        'cuda-flags of [kernel.b]: "-Xcompiler -Wl,-rpath=/" is refused: it is not on the list',
        ("flag_refused", "build.toml", 16),
    ),
    "the same word in another table is not meant": (
        Cause.REFUSED_FLAG,
        'cxx-flags of [kernel.b]: "-O3" is refused',
        ("flag_refused", "build.toml", 13),
    ),
    "a flag that cannot be found": (
        Cause.REFUSED_FLAG,
        "cuda-flags of [kernel.a]: '\\x00': flags are printable",
        ("flag_refused", "build.toml", 8),
    ),
    "a table that is not there": (
        Cause.REFUSED_FLAG,
        'cuda-flags of [kernel.z]: "-q" is refused',
        ("flag_refused", "build.toml", None),
    ),
    "upstream's parser": (Cause.BAD_BUILD_TOML, UPSTREAM, ("build_toml", "build.toml", 3)),
    "an unknown key": (
        Cause.BAD_BUILD_TOML,
        "build.toml is not valid: Unknown field versoin. Expected one of name, version",
        ("build_toml", "build.toml", 3),
    ),
    "a line that is not there": (
        Cause.BAD_BUILD_TOML,
        "build.toml is not valid: Expected newline (at line 999, column 1)",
        ("build_toml", "build.toml", None),
    ),
    "no kernel for this GPU": (
        Cause.NO_BACKEND,
        "no kernel of this project runs on sm_90: cuda-capabilities give 8.0; add \"9.0\"",
        ("wrong_arch", "build.toml", 7),
    ),
    "a listed file that is missing": (
        Cause.BAD_LAYOUT,
        'src of [kernel.b]: "b.cu" does not exist in the project',
        ("layout", "build.toml", 17),
    ),
    "a header that no src lists": (
        Cause.BAD_LAYOUT,
        'b.cu:2 includes "b.h", which no `src` of build.toml lists: list headers too',
        ("missing_header", "b.cu", 2),
    ),
    "Python": (
        Cause.BAD_LAYOUT,
        "torch-ext/x/__init__.py:1: SyntaxError: invalid syntax",
        ("syntax", "torch-ext/x/__init__.py", 1),
    ),
    "a missing package": (
        Cause.BAD_LAYOUT,
        "torch-ext/x/__init__.py is missing: the package's name is general.name",
        ("layout", "build.toml", None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_point_into_the_project(name):
    """Kind, file and line; the line is quoted as written, and never guessed."""
    cause, message, expected = REFUSALS[name]
    one = refusal(Finding(cause=cause, message=message), FILES_OF)
    assert (one.kind, one.file, one.line) == expected
    if one.line is not None and one.file is not None:
        assert one.source == FILES_OF[one.file].split("\n")[one.line - 1]
    assert one.message and "\n" not in one.message


def test_the_reason_of_upstreams_parser_is_the_message():
    """Without the place, which stands before it."""
    one = refusal(Finding(cause=Cause.BAD_BUILD_TOML, message=UPSTREAM), FILES_OF)
    assert (one.message, one.column) == ("invalid string, expected `\"`, `'`", 11)


def test_the_line_of_our_advice_is_the_place():
    """The advice is the message, and the line that it names is where to look."""
    message = "build.toml is not valid: line 2: write `edition = 5`\nkernel-builder says: did not match v4"
    one = refusal(Finding(cause=Cause.BAD_BUILD_TOML, message=message), FILES_OF)
    assert (one.file, one.line, one.message) == ("build.toml", 2, "write `edition = 5`")


def test_a_project_without_build_toml_has_no_place():
    """There is nothing to point into."""
    one = refusal(Finding(cause=Cause.BAD_BUILD_TOML, message="build.toml is missing"), {})
    assert (one.kind, one.file, one.message) == ("build_toml", None, "build.toml is missing")


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
    for written in ("demo::fill_floats(float*, long)", "demo::fill_floats<float>(float*)", "fill_floats"):
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


@pytest.mark.parametrize("symbol", ["_ZN2at4_ops3addE", "_Z", "_Z999", "_ZNK3fooEv", "plain", "_Z3a"])
def test_any_symbol_can_be_read(symbol):
    """Names come from a hostile library."""
    (one,) = load_failure(f"undefined symbol: {symbol}", FILES)
    assert one.kind == "binding_mismatch" and one.file is None
