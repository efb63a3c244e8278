"""Off-by-one mistakes are planted where they can be made, and nowhere else."""

from __future__ import annotations

import pytest

from harness.records import Project, ProjectFile
from harness.suite.mutants import mutants, sources

PATH = "k_cpu/k.cpp"


def changed(line: str) -> list[str]:
    """What becomes of one line."""
    project = Project(files=(ProjectFile(path=PATH, text=f"int x;\n{line}\nint y;\n"),))
    found = mutants(project, [PATH])
    assert all(m.line == 2 and m.before == line for m in found)
    assert all(m.project.files[0].text == f"int x;\n{m.after}\nint y;\n" for m in found)
    return [m.after for m in found]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (
            "for (int i = 0; i < n; ++i) {",
            [
                "for (int i = 0; i <= n; ++i) {",
                "for (int i = 0; i < n - 1; ++i) {",
                "for (int i = 1; i < n; ++i) {",
            ],
        ),
        ("for (; j + W <= cols; j += W) {", ["for (; j + W <= cols + 1; j += W) {"]),
        ("for (i = 0; i < rows; i += kBlock) {", ["for (i = 0; i < rows - 1; i += kBlock) {"]),
        ("while (left < right) {", ["while (left <= right) {", "while (left < right - 1) {"]),
        ("const int half = (n + 1) / 2;", ["const int half = (n) / 2;"]),
        ("out[n - 1] = 0;", ["out[n] = 0;"]),
    ],
)
def test_mistakes_of_bounds(line: str, after: list[str]) -> None:
    """Loops end a step late or early or start late; a 1 is forgotten."""
    assert changed(line) == after


@pytest.mark.parametrize(
    "line",
    [
        "v = a < b ? a : b;",
        "template <int W, int N = 1 + 1>",
        "#define LAST(n) (n - 1)",
        "// for (int i = 0; i < n; ++i)",
        'say("i < n - 1");  // n - 1',
        "for (int i = 0; i < n; ++i) hint(i);  // no mutate: only a hint",
        "for (int i = 0; i < n; ++i) __builtin_prefetch(x + i);",
        "x = 1.5f * y + 1.0f;",
        "STD_TORCH_CHECK(x.dim() == y.dim() + 1);",
    ],
)
def test_what_is_no_bound_is_left_alone(line: str) -> None:
    """Values, declarations, comments, strings, argument checks and marked lines."""
    assert changed(line) == []


def test_a_check_over_several_lines_is_left_alone() -> None:
    """Argument checks are not part of what is computed."""
    text = "STD_TORCH_CHECK(\n    a.size(0) == n - 1,\n    message);\nout[n - 1] = 0;\n"
    found = mutants(Project(files=(ProjectFile(path=PATH, text=text),)), [PATH])
    assert [m.line for m in found] == [4]


def test_only_kernels_for_the_cpu_are_mutated() -> None:
    """Neither the binding nor what nvcc compiles."""
    paths = ["k_cpu/k.cpp", "k_cuda/k.cu", "k_cuda/k.h", "torch-ext/torch_binding.cpp"]
    project = Project(files=tuple(ProjectFile(path=path, text="") for path in paths))
    assert sources(project) == ["k_cpu/k.cpp"]
