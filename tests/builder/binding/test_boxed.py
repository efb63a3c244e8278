"""Warnings of functions bound with TORCH_BOX that receive other numbers than were passed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.builder.binding.boxed import boxed_warnings
from harness.builder.build import build
from harness.builder.failure.log import TREE
from harness.builder.toolchain import find_toolchain
from harness.files import data_directory
from harness.records import BuildResult
from harness.skills.blocks import code_blocks, shown_projects
from harness.suite.catalogue import read_project
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.overlays import TESTS, ZOO, zoo_project
from tests.fakes.projects import FILES, fake_toolchain, project
from tests.fakes.sandbox import FakeSandbox, exit_facts

BINDING = "torch-ext/torch_binding.cpp"
WRONG = {BINDING: FILES[BINDING].replace("double value", "float value")}
"""The change that compiles, and fills with 0.0 for 2.5."""


def source(function: str, schema: str = "op(Tensor! out, float a) -> ()", bound: str = "&op") -> str:
    """A binding of one operator."""
    return (
        f"#include <torch/csrc/stable/library.h>\n{function}\n"
        f'STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {{ ops.def("{schema}"); }}\n'
        "STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {\n"
        f'  ops.impl("op", TORCH_BOX({bound}));\n}}\n'
    )


def told(
    function: str, schema: str = "op(Tensor! out, float a) -> ()", bound: str = "&op"
) -> tuple[str, ...]:
    return boxed_warnings({"b.cpp": source(function, schema, bound)})


def test_the_warning_says_where_what_and_what_instead() -> None:
    """One line: file and line of the parameter, both types, what arrives, what to write."""
    assert told("void op(const Tensor& out,\n        float alpha) {}") == (
        "binding: b.cpp:3: parameter 2 of `op`, `float` in the schema, is `float alpha`: it holds the low "
        "half of the double's bits, so garbage. TORCH_BOX converts nothing: write double, in every "
        "declaration, and convert inside",
    )


@pytest.mark.parametrize(
    ("schema", "cpp", "said"),
    [
        ("float", "float a", "low half of the double's bits"),
        ("float", "const float& a", "write double,"),
        ("float", "long double a", "bits of a double"),
        ("float", "int64_t a", "bits of a double"),
        ("float=1.0", "float a = 1.0f", "write double,"),
        ("int", "int a", "2**31 or more, or below -2**31"),
        ("int", "std::int32_t a", "low 32 of 64 bits"),
        ("SymInt", "unsigned short int a", "2**16 or more, or below 0"),
        ("int", "bool a", "1 byte of 8"),
        ("int", "double a", "bits of an int64_t"),
        ("bool", "float", "bits of a bool"),
        ("float?", "std::optional<float> a", "write std::optional<double>,"),
        ("float?", "double a", "bits of a pointer"),
        ("float", "std::optional<double> a", "taken for a pointer"),
        ("float[]", "const std::vector<float>& a", "write std::vector<double>,"),
        ("int[2]", "torch::headeronly::HeaderOnlyArrayRef<int> a", "write std::vector<int64_t>,"),
        ("int[]?", "std::optional<std::vector<int>> a", "write std::optional<std::vector<int64_t>>,"),
    ],
)
def test_what_arrives_as_something_else_is_told(schema: str, cpp: str, said: str) -> None:
    """Numbers alone, optional and in lists, of every width."""
    kind, equals, default = schema.partition("=")
    (warning,) = told(f"void op(Tensor out, {cpp}) {{}}", f"op(Tensor! out, {kind} a{equals}{default}) -> ()")
    assert said in warning and f"`{kind}` in the schema" in warning


@pytest.mark.parametrize(
    ("schema", "cpp"),
    [
        ("float", "double a"),
        ("float", "const double a"),
        ("int", "int64_t a"),
        ("int", "std::int64_t"),
        ("SymInt", "long long a"),
        ("int", "size_t a"),
        ("bool", "bool a"),
        ("bool", "int64_t a"),
        ("float?", "const std::optional<double>& a"),
        ("int[]", "std::vector<int64_t> a"),
        ("int[]?", "std::optional<torch::headeronly::HeaderOnlyArrayRef<int64_t>> a"),
        ("ScalarType", "int32_t a"),
        ("ScalarType", "torch::headeronly::ScalarType a"),
        ("str", "std::string a"),
        ("float", "Unknown a"),
        ("Tensor", "const Tensor& a"),
    ],
)
def test_what_fits_or_is_not_known_is_not_told(schema: str, cpp: str) -> None:
    """Types of 8 bytes, those that the ABI converts, and those that only a compiler knows."""
    assert told(f"void op(Tensor out, {cpp}) {{}}", f"op(Tensor! out, {schema} a) -> ()") == ()


@pytest.mark.parametrize(
    ("cpp", "schema", "wrong"),
    [
        ("float", "float", True),
        ("double", "float", False),
        ("int", "int", True),
        ("int64_t", "int", False),
        ("static inline int32_t", "int", True),
        ("void", "()", False),
        ("std::tuple<float, float>", "(float, float)", False),
    ],
)
def test_results_are_read_too(cpp: str, schema: str, wrong: bool) -> None:
    """A result of 4 bytes is filled up with zeros: -7 becomes 4294967289."""
    found = told(f"{cpp} op(Tensor x) {{}}", f"op(Tensor x) -> {schema}")
    assert [w.split(" is ")[0].rpartition(": ")[2] for w in found] == (
        [f"result of `op`, `{schema}` in the schema,"] if wrong else []
    )


WAYS = {
    "a signature of many lines": "static void\nop(\n  Tensor out, // float b\n  /* int */ float a\n) {\n}",
    "in a namespace, with attributes": (
        "namespace a::b { [[nodiscard]] __attribute__((noinline))\n"
        "void op(Tensor out, [[maybe_unused]] float a); }"
    ),
    "in an anonymous namespace": 'namespace {\nextern "C" { void op(Tensor out, float a) {} }\n}',
    "of a class": "struct K { int64_t size() { return 1; } static void op(Tensor out, float a) {} };",
    "with a trailing result": "auto op(Tensor out, float a) noexcept -> void {}",
    "under another name of the type": "using scalar = float;\nvoid op(Tensor out, scalar a) {}",
    "under a typedef": "typedef float scalar;\nvoid op(Tensor out, scalar a) {}",
    "after branches that open the same brace": (
        "#ifdef X\nnamespace a {\n#else\nnamespace b {\n#endif\nint x;\n}\nvoid op(Tensor out, float a) {}"
    ),
    "after raw strings": 'const char* t = R"x(} void op(double) {)x";\nvoid op(Tensor out, float a) {}',
    "beside helpers of the same name": (
        "namespace cpu { void op(float* out, const double a) {} }\nvoid op(Tensor out, float a) {}"
    ),
}


@pytest.mark.parametrize("function", WAYS.values(), ids=WAYS)
def test_the_function_is_found_however_it_is_written(function: str) -> None:
    """Comments, namespaces, classes, attributes, aliases, branches."""
    (warning,) = told(function)
    assert "parameter 2 of `op`" in warning


def test_templates_are_read_with_their_arguments() -> None:
    """Of one function two uses, of which one is wrong."""
    function = "template <typename T, int N = 4>\nvoid op(Tensor out, T a) {}"
    assert told(function, bound="(&op<double>)") == () == told(function, bound="&op")
    (warning,) = told(function, bound="(&op<float, 8>)")
    assert "`T a`" in warning


QUIET = {
    "it is a comment": "void op(Tensor out, double a) {}\n// void op(Tensor out, float a) {}",
    "it is never compiled": "void op(Tensor out, double a) {}\n#if 0\nvoid op(Tensor out, float a);\n#endif",
    "it is another overload": "void op(Tensor out, float a, int b) {}\nvoid op(Tensor out, double a) {}",
    "both could be meant": (
        "namespace a { void op(Tensor out, float a); }\nnamespace b { void op(Tensor out, double a); }"
    ),
    "it is a call": "void op(Tensor out, double a) { f(out, float(a)); }\nstatic int x = op(out, float);",
    "a macro stands for it": "#define F(x) void op(Tensor out, float a)\nvoid op(Tensor out, double a) {}",
    "it is not declared": "",
}


@pytest.mark.parametrize("function", QUIET.values(), ids=QUIET)
def test_what_may_be_right_is_not_told(function: str) -> None:
    """Nothing is said where the source can be read another way."""
    assert told(function) == ()


def test_a_header_is_read_where_it_is_included() -> None:
    """The declaration in the project's own header is shown where nothing is defined beside the binding."""
    header = "#pragma once\nvoid op(Tensor out, float a);\n"
    binding = '#include "ops.h"\n' + source("")
    found = boxed_warnings({"torch-ext/b.cpp": binding, "torch-ext/ops.h": header})
    assert [w.split(": ")[1] for w in found] == ["torch-ext/ops.h:2"]
    assert boxed_warnings({"torch-ext/b.cpp": source(""), "torch-ext/ops.h": header}) == ()
    moved = binding.replace('"ops.h"', '"../include/ops.h"')
    assert len(boxed_warnings({"torch-ext/b.cpp": moved, "include/ops.h": header})) == 1


def test_without_a_schema_only_a_float_is_wrong() -> None:
    """An int may be right for a dtype; a float never is."""
    both = source("void op(Tensor out, int n, float a) {}").replace("ops.def", "other")
    (warning,) = boxed_warnings({"b.cpp": both.replace("-> ()", "")})
    assert "parameter 3 of `op` is `float a`: it never holds the number that was passed" in warning


def test_only_boxed_functions_are_told() -> None:
    """torch::Library checks types itself, and a kernel's own floats are its own."""
    plain = source("void op(Tensor out, float a) {}").replace("TORCH_BOX(&op)", "torch::kCPU, &op")
    assert boxed_warnings({"b.cpp": plain}) == ()


def test_many_warnings_are_counted() -> None:
    """Eight are shown."""
    parts = [source(f"void op(Tensor out, float a{n}) {{}}") for n in range(20)]
    found = boxed_warnings({f"b{n:02}.cpp": part for n, part in enumerate(parts)})
    assert len(found) == 9 and found[-1] == "binding: 12 more of this kind"


@pytest.mark.parametrize(
    "text",
    [
        "TORCH_BOX(&" * 20_000,
        "TORCH_BOX(&f); " + "#if 1\n" * 50_000,
        "TORCH_BOX(&f); " + "a " * 2_000 + "#if 1\n#endif\n" * 20_000,
        "TORCH_BOX(&f); " + 'R"x(' * 50_000,
        "TORCH_BOX(&f); " + "/*" * 100_000,
        "TORCH_BOX(&f); " + "void f(" * 50_000,
        "TORCH_BOX(&f); " + "void f(float a);" * 20_000,
        "TORCH_BOX(&f); " + "namespace f {" * 20_000 + "}" * 40_000,
        "TORCH_BOX(&f<" + "<" * 50_000,
        'TORCH_BOX(&f); "' + "op(" * 100_000 + ') -> ()"',
        "TORCH_BOX(&f); template <" * 10_000,
        "TORCH_BOX(&f); " + "f::" * 100_000 + "(",
    ],
    ids=range(12),
)
def test_hostile_text_ends(text: str) -> None:
    """Unbalanced, nested and endless source is read once and raises nothing."""
    assert all(w.startswith("binding: ") for w in boxed_warnings({"b.cpp": text}))


# --- what is honest --------------------------------------------------------------------------------


def test_no_project_of_ours_is_warned_of() -> None:
    """Expert projects, projects for tests, all of the zoo, and every project in a skill."""
    folders = [p.parent for root in (data_directory("kernels_ref"), TESTS) for p in root.rglob("build.toml")]
    read = [read_project(folder) for folder in sorted(folders)]
    read += [zoo_project(path.parent.name) for path in sorted(ZOO.glob("*/zoo.toml"))]
    for path in sorted(data_directory("skills").rglob("*.md")):
        read += [shown.project for shown in shown_projects(code_blocks(path.name, path.read_text()))]
    boxed = [p for p in read if any("TORCH_BOX" in file.text for file in p.files)]
    assert len(boxed) > 200
    assert [w for one in boxed for w in boxed_warnings({f.path: f.text for f in one.files})] == []


# --- in a build's result ---------------------------------------------------------------------------


def built(tmp_path: Path, changes: dict[str, str]) -> BuildResult:
    """With a sandbox that only pretends; from the cache the second time."""
    given = project(changes)
    library = f"{TREE}/lib/_fill_it_cpu_{given.digest[:7]}.abi3.so"
    sandbox = FakeSandbox(exit_facts("ok", "[1/3] g++\n", 0), {library: b"\x7fELF..."})
    made = build(
        given, "cpu", sandbox=sandbox, toolchain=fake_toolchain(tmp_path / "tools"), cache=tmp_path / "cache"
    )
    return made.result


def test_a_build_carries_the_warning_and_other_builds_do_not_change(tmp_path: Path) -> None:
    """Fresh and from the cache alike; what is right has the record that it had."""
    first, second = (built(tmp_path, WRONG) for _ in range(2))
    assert second.cache_hit and first.ok and first.diagnostics == ()
    assert first.warnings == second.warnings and len(first.warnings) == 1
    (warning,) = first.binding_warnings
    assert warning.startswith(
        "torch-ext/torch_binding.cpp:7: parameter 2 of `fill`, `float` in the schema, is"
    )
    right = built(tmp_path, {})
    assert right.warnings == () == right.binding_warnings


_FILL = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("fill_it", sys.argv[1] + "/__init__.py",
                                              submodule_search_locations=[sys.argv[1]])
module = importlib.util.module_from_spec(spec)
sys.modules["fill_it"] = module
spec.loader.exec_module(module)
out = torch.ones(3)
module.fill(out, value=2.5)
print(out.tolist())
"""


@pytest.mark.slow
def test_what_is_warned_of_is_true(tmp_path: Path) -> None:
    """It compiles, loads and fills with the low half of 2.5's bits, which is 0.0."""
    toolchain = find_toolchain()
    if toolchain.missing("cpu") is not None:
        pytest.skip(str(toolchain.missing("cpu")))
    made = build(
        project(WRONG), "cpu", sandbox=SandboxPool(LocalBackend()), toolchain=toolchain, cache=tmp_path
    )
    assert made.result.ok and made.package is not None and len(made.result.binding_warnings) == 1
    command = [sys.executable, "-I", "-c", _FILL, str(made.package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[0.0, 0.0, 0.0]", done.stderr
