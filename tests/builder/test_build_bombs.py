"""Projects that would compile for ever or eat the machine: stopped, blamed on the student, and gone."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from harness.builder.build import build
from harness.builder.toolchain import Toolchain
from harness.outcome import Cause
from harness.records import DiagnosticKind
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.processes import processes_naming
from tests.fakes.projects import project

TEMPLATES = """\
template<int N, int M> struct F { static constexpr int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };
template<int M> struct F<0, M> { static constexpr int v = M; };
int x = F<28, 0>::v;
"""
INCLUDES = '#if __INCLUDE_LEVEL__ < 60\n#include "@SELF@"\n#include "@SELF@"\n#endif\n'
ARRAY = "extern const char a[1ull << 34];\nconst char a[1ull << 34] = {1, 2, 3};\n"
PACK = "#include <utility>\nstd::make_integer_sequence<int, 100000000> s;\n"

BOMBS: dict[str, tuple[str, float, int, Cause, DiagnosticKind]] = {
    "templates": (TEMPLATES, 2.0, 8 << 30, Cause.BUILD_TIMEOUT, "timeout"),
    "includes": (INCLUDES, 2.0, 8 << 30, Cause.BUILD_TIMEOUT, "timeout"),
    "a parameter pack": (PACK, 60.0, 300 << 20, Cause.BUILD_LIMIT, "out_of_memory"),
    "a giant array": (ARRAY, 60.0, 8 << 30, Cause.BUILD_LIMIT, "other"),
}
"""Text, limits, what comes of it. A file is limited to 256 MiB, which the array goes over."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped_and_nothing_of_it_stays(name: str, toolchain: Toolchain, tmp_path: Path) -> None:
    """Build failed for the right limit, the file is named, no compiler lives on, and the next build works."""
    text, wall_s, memory_bytes, cause, kind = BOMBS[name]
    source = f"kernels/bomb_{secrets.token_hex(8)}.cpp"
    binding = {'"torch-ext/torch_binding.cpp", ': ""}
    given = project(
        {source: text.replace("@SELF@", Path(source).name)},
        toml=binding | {'src = ["kernels/fill.cpp"': f'src = ["{source}"'},
    )
    result = build(
        given,
        "cpu",
        sandbox=SandboxPool(LocalBackend()),
        toolchain=toolchain,
        cache=tmp_path,
        wall_s=wall_s,
        memory_bytes=memory_bytes,
    ).result
    assert result.finding is not None and result.finding.cause is cause, result.finding
    assert [(d.kind, d.file) for d in result.diagnostics] == [(kind, source)], result.diagnostics
    assert processes_naming(Path(source).stem) == []
    good = build(
        project(toml=binding),
        "cpu",
        sandbox=SandboxPool(LocalBackend()),
        toolchain=toolchain,
        cache=tmp_path,
    )
    assert good.result.ok, good.result.finding
