"""Compiling the pieces of code that a skill shows: the ways to try, and where an error stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.build import build
from harness.builder.toolchain import Toolchain
from harness.outcome import Cause
from harness.records import BuildResult, Diagnostic, Finding, Project, Target
from harness.skills.check import CodeCounts, SkillReport, check_skill
from harness.skills.code_blocks import CodeBlock, code_file
from harness.skills.compile_blocks import attempts, compile_block, compiler_severity
from sandboxes.pool import SandboxPool
from tests.fakes.skills import make_skill
from tests.fakes.trials import build_result


def result(target: Target, finding: Finding | None = None, *diagnostics: Diagnostic) -> BuildResult:
    return build_result(finding, backend=target, diagnostics=diagnostics)


def piece(text: str, language: str = "cuda") -> CodeBlock:
    """A piece whose opening fence stands on line 10."""
    return CodeBlock("SKILL.md", 10, language, None, text)


class Compiler:
    """Fails where a file holds one of the bad words, at that word's line; knows only what is included."""

    def __init__(self, *bad: str, cause: Cause = Cause.COMPILE_ERROR) -> None:
        self.bad = bad
        self.cause = cause
        self.seen: list[tuple[str, str]] = []

    def __call__(self, project: Project, target: Target) -> BuildResult:
        (path, text), *_ = [
            (f.path, f.text)
            for f in project.files
            if f.path not in ("build.toml", "torch-ext/fragment/__init__.py")
        ]
        self.seen.append((path, text))
        for number, line in enumerate(text.split("\n"), 1):
            for word in self.bad:
                if word in line:
                    message = f"too few arguments in call of {word}"
                    told = Diagnostic(kind="syntax", message=message, file=path, line=number)
                    return result(target, Finding(cause=self.cause, message="no"), told)
        return result(target)


@pytest.mark.parametrize(("bad", "line"), [(("a.h", "oops"), 11), (("oops",), 13)])
def test_an_error_is_shown_at_its_line_of_the_skill(bad: tuple[str, ...], line: int) -> None:
    """Lines added above a piece do not count; of several attempts the furthest error is reported."""
    text = "#include <a.h>\n__global__ void f() {\n  oops;\n}\n"
    (finding,) = compile_block(piece(text), Compiler(*bad)).findings
    said = f"this code does not compile for sm_90: too few arguments in call of {bad[0]}"
    assert str(finding) == f"SKILL.md:{line}: error: {said}"


def test_statements_are_put_into_a_function() -> None:
    """Code that only a body can hold is tried as one: of a kernel, or where it launches one of the host."""
    (kernel, whole) = attempts(piece("float v = x[threadIdx.x];\n"))
    texts = [next(f.text for f in a.project.files if f.path == a.path) for a in (kernel, whole)]
    assert "__global__ void statements_of_the_skill() {\nfloat v = x[threadIdx.x];\n}" in texts[0]
    assert texts[1].endswith("\nfloat v = x[threadIdx.x];\n")
    plain = next(attempts(piece("float f(float x) { return x; }\n", "cpp")))
    assert (kernel.target, plain.target) == ("cuda", "cpu")
    (host, _) = attempts(piece("f<<<1, 32>>>(x);\n", "cpp"))
    text = next(f.text for f in host.project.files if f.path == host.path)
    assert "\nvoid statements_of_the_skill() {\nf<<<1, 32>>>(x);\n}" in text
    assert text.split("\n")[host.before] == "f<<<1, 32>>>(x);"


def test_a_whole_file_is_tried_as_it_stands_only() -> None:
    """A file that lacks an include is wrong, however usual the header."""
    (attempt,) = attempts(CodeBlock("SKILL.md", 1, "cuda", "kernels/a.cu", "__half h;\n"))
    assert (attempt.path, attempt.before, attempt.target) == ("kernels/a.cu", 0, "cuda")
    (attempt,) = attempts(code_file("references/a.cuh", "#pragma once\n"))
    assert attempt.path == "references/a.cuh.cu"


def test_link_errors_and_missing_toolchains_are_not_the_pieces_fault() -> None:
    """A linked piece may use definitions that are not shown; without nvcc nothing is judged."""
    block = piece("oops;\n")
    linked = compile_block(block, Compiler("oops", cause=Cause.LINK_ERROR))
    assert linked[:3] == ({block: "built"}, [], ())
    judged = compile_block(block, Compiler("oops", cause=Cause.NO_TOOLCHAIN))
    assert judged[:3] == ({block: "not_built"}, [], ("no",))


def test_headers_that_never_build_are_refused_without_a_compiler() -> None:
    """torch/extension.h costs minutes and fails: it is known beforehand."""
    compiler = Compiler()
    tried = compile_block(piece("\n#include <torch/extension.h>\n", "cpp"), compiler)
    assert [finding.line for finding in tried.findings] == [12]
    assert compiler.seen == []


def build_toml(backends: str = '"cuda"', torch: str = "") -> str:
    """A build.toml with one CUDA kernel of a.cu."""
    return (
        f'[general]\nname = "my-op"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = [{backends}]\n'
        f'[torch]\nsrc = [{torch}]\n[kernel.a]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["a.cu"]\n'
    )


BODY = """\
```cuda
__global__ void good() {}
```
```cuda
__global__ void oops() {}
```
```cuda fragment
oops ...
```
```python fragment
def f(...
```
```yaml
a: [1
```
```bash
rm -rf /
```
```json
{}
```
```
plain
```
"""


def test_the_report_counts_by_language_and_outcome(tmp_path: Path) -> None:
    """Built, parsed, not built, failed and not read; fragments are neither compiled nor parsed."""
    files = {"scripts/a.cu": "int x;\n", "references/b.cpp": "oops\n"}
    seen: list[tuple[int, int]] = []
    report = check_skill(
        make_skill(tmp_path, BODY, files), build=Compiler("oops"), progress=lambda *of: seen.append(of)
    )
    assert report.code == {
        "bash": CodeCounts(unread=1),
        "cpp": CodeCounts(failed=1),
        "cuda": CodeCounts(built=2, not_built=1, failed=1),
        "json": CodeCounts(parsed=1),
        "python": CodeCounts(not_built=1),
        "text": CodeCounts(unread=1),
        "yaml": CodeCounts(failed=1),
    }
    assert [(f.file, f.line, f.severity) for f in report.findings] == [
        ("SKILL.md", 9, "error"),
        ("SKILL.md", 18, "warning"),
        ("references/b.cpp", 1, "error"),
    ]
    assert seen[-1] == (4, 4)
    assert SkillReport.model_validate_json(report.model_dump_json()) == report


def test_what_cannot_be_compiled_here_is_counted_as_not_built(tmp_path: Path) -> None:
    """Without a build function nothing is said; a missing toolchain is one warning for all pieces."""
    skill = make_skill(tmp_path, "```cuda\noops\n```\n" * 3)
    report = check_skill(skill)
    assert (report.code, report.ok, report.findings) == ({"cuda": CodeCounts(not_built=3)}, True, ())
    report = check_skill(skill, build=Compiler("oops", cause=Cause.NO_TOOLCHAIN))
    assert report.code == {"cuda": CodeCounts(not_built=3)}
    assert [str(f) for f in report.findings] == ["SKILL.md: warning: not built here: no"]


@pytest.mark.parametrize(
    ("toml", "line", "said"),
    [
        ('[general.cuda]\ncapabilities = ["9.0"]\n', 7, "under [kernel.NAME]"),
        ("[kernel.a]\ncuda-capabilities = [9.0]\n", 7, 'write "9.0" for 9.0'),
        ('[torch]\nsrcs = ["a.cpp"]\n', 7, "did you mean src"),
        ('[kernel.a]\nbackend = "cpu"\ncxx-flags = ["-mavx2"]\n', None, ""),
        ('[torch]\nstable-abi = "2.10"\n', None, ""),
        ('[general]\nname = "my-op"\n', None, ""),
        ("[general]\nlog_level = 'debug'\n", None, ""),
    ],
)
def test_part_of_a_build_toml_is_judged_for_what_it_says(
    tmp_path: Path, toml: str, line: int | None, said: str
) -> None:
    """A refusal is reported at its key; keys that are left out are no fault, nor is other TOML."""
    found = check_skill(make_skill(tmp_path, f"```toml\n{toml}```\n")).findings
    assert [(one.line, one.severity) for one in found] == ([] if line is None else [(line, "error")])
    assert all(said in one.message for one in found)


def test_a_folder_with_a_build_toml_is_a_project(tmp_path: Path) -> None:
    """Its files are built together; an error is reported in its file, or at its line of a shown project."""
    files = {"build.toml": build_toml(), "a.cu": "\noops\n", "torch-ext/my_op/__init__.py": ""}
    builder = Compiler("oops")
    skill = make_skill(tmp_path, "Body.\n", {f"assets/t/{name}": text for name, text in files.items()})
    report = check_skill(skill, build=builder)
    assert builder.seen == [("a.cu", "\noops\n")]
    assert [(f.file, f.line) for f in report.findings if f.severity == "error"] == [("assets/t/a.cu", 2)]
    assert report.code["cuda"] == CodeCounts(failed=1)
    assert (report.projects[0].file, report.projects[0].name) == ("assets/t/build.toml", "my-op")
    body = f"```cuda a.cu\n\noops\n```\n```toml build.toml\n{build_toml()}```\n"
    shown = check_skill(make_skill(tmp_path / "shown", body), build=builder)
    assert [str(f) for f in shown.findings if f.severity == "error"] == [
        "SKILL.md:7: error: the project shown here does not build for cuda: too few arguments in call of oops"
    ]


def test_a_binding_that_changes_numbers_is_a_warning_at_its_line(tmp_path: Path) -> None:
    """Reported once, though both targets say it; the code counts as built."""

    def builder(project: Project, target: Target) -> BuildResult:
        warnings = ("a note", "binding: b.cpp:2: parameter 2 is wrong")
        return result(target).model_copy(update={"warnings": warnings})

    toml = build_toml('"cpu", "cuda"', '"b.cpp"')
    body = f"```cpp b.cpp\n\nvoid f(float a);\n```\n```cuda a.cu\n```\n```toml build.toml\n{toml}```\n"
    report = check_skill(make_skill(tmp_path, body), build=builder)
    (found,) = report.findings
    assert str(found) == "SKILL.md:7: warning: parameter 2 is wrong"
    assert report.code["cpp"] == CodeCounts(built=1)


def test_a_project_that_is_not_shown_whole_is_not_built(tmp_path: Path) -> None:
    """A document may show build.toml and only some of its sources."""
    toml = build_toml(torch='"torch-ext/b.cpp"')
    body = f"```cuda a.cu\nint x;\n```\n```toml build.toml\n{toml}```\n"
    builder = Compiler("oops")
    (found,) = check_skill(make_skill(tmp_path, body), build=builder).findings
    assert builder.seen == []
    assert found.severity == "warning" and "torch-ext/b.cpp" in found.message


SURE = "too few arguments in function call"
UNKNOWN = 'identifier "tile" is undefined'


@pytest.mark.parametrize(
    ("path", "text", "message", "severity"),
    [
        (None, "f(tile);", UNKNOWN, "note"),
        (None, "for each block:", 'expected a "("', "warning"),
        (None, "f(1);", SURE, "error"),
        ("a.cu", "f(tile);", UNKNOWN, "error"),
        ("a.cu", "f(TILE);", 'identifier "TILE" is undefined', "note"),
        ("a.cuh", "f(tile);", UNKNOWN, "note"),
        ("a.cu", "// ...\nf(tile);", UNKNOWN, "note"),
        ("a.cu", '#include "mine.h"', "mine.h: No such file or directory", "note"),
    ],
)
def test_an_error_is_what_no_hidden_line_could_settle(
    path: str | None, text: str, message: str, severity: str
) -> None:
    """Unknown names and syntax are sure in a whole source file alone, types and counts anywhere."""
    kind = "missing_header" if "No such file" in message else "syntax"
    told = Diagnostic(kind=kind, message=message, source=text.split("\n")[-1])
    assert compiler_severity(CodeBlock("SKILL.md", 10, "cuda", path, text), told) == severity


@pytest.mark.parametrize(
    ("lead", "code", "severity"),
    [
        ("Call it:", "oops", "error"),
        ("This does not compile:", "oops", "note"),
        ("So:", "// WRONG: too few\noops", "note"),
    ],
)
def test_code_that_is_shown_as_wrong_is_no_error(tmp_path: Path, lead: str, code: str, severity: str) -> None:
    """The line above it, or a comment, says so."""
    report = check_skill(make_skill(tmp_path, f"{lead}\n\n```cuda\n{code}\n```\n"), build=Compiler("oops"))
    assert [f.severity for f in report.findings] == [severity]


def test_torchs_own_extensions_are_no_error_where_they_are_meant(tmp_path: Path) -> None:
    """A header that kernel-builder refuses is wrong in a skill about kernel-builder alone."""
    code = "```cpp\n#include <torch/extension.h>\n```\n"
    for root, words, severity in (
        ("a", "Build with kernel-builder.", "error"),
        ("b", "Load with `load_inline`; later use kernel-builder.", "warning"),
        ("c", "Build an extension.", "warning"),
    ):
        (tmp_path / root).mkdir()
        report = check_skill(make_skill(tmp_path / root, f"{words}\n\n{code}"), build=Compiler())
        assert {f.severity for f in report.findings} == {severity}


@pytest.mark.parametrize(
    ("name", "text", "severity"),
    [
        ("scripts/a.py", "x = = 1\n", "error"),
        ("scripts/a.py", "import {{ package }}\n", "warning"),
        ("scripts/a.py", "(" * 300_000, "warning"),
        ("assets/a.json", "{'a': 1}", "error"),
        ("assets/a.json", '// a comment\n{"a": 1}', "warning"),
        ("assets/a.yaml", "a: [1\n", "error"),
        ("assets/build.toml", '[general]\nname = "<NAME>"\nbackends = ["cuda"]\n', "warning"),
    ],
)
def test_files_and_templates(tmp_path: Path, name: str, text: str, severity: str) -> None:
    """A file that nothing can parse is wrong; a template may be right, and a large file is not read."""
    found = check_skill(make_skill(tmp_path, "Body.\n", {name: text})).findings
    assert [(f.file, f.severity) for f in found] == [(name, severity)]


TEMPLATES = """\
```cuda
template <typename T, int kBlock>
__global__ void tiled(const T* x, T* out) {
  __shared__ T tile[kBlock / 64];
  tile[0] = x[threadIdx.x];
  out[threadIdx.x] = tile[0];
}
void run(const float* x, float* out, cudaStream_t s) { tiled<float, 32><<<1, 32, 0, s>>>(x, out); }
```
```cuda
__device__ float warp_sum(float v, int width) { return v + width; }
__global__ void norm(const __nv_bfloat16* x, float* out) {
  out[threadIdx.x] = warp_sum(__bfloat162float(x[threadIdx.x]));
}
```
```cuda
asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
float v = __shfl_xor_sync(0xffffffffu, 1.0f, 16);
```
"""


@pytest.mark.slow
def test_wrong_templates_fail_where_they_are_wrong(
    tmp_path: Path, toolchain: Toolchain, sandbox: SandboxPool
) -> None:
    """nvcc's own errors: an array without elements, a call with too few arguments; sm_90a code compiles."""
    missing = toolchain.missing("cuda")
    if missing is not None:
        pytest.skip(missing)
    cache = tmp_path / "cache"
    report = check_skill(
        make_skill(tmp_path, TEMPLATES),
        build=lambda p, t: build(p, t, sandbox=sandbox, toolchain=toolchain, cache=cache).result,
    )
    assert [f.line for f in report.findings] == [8, 17]
    assert "zero-sized variable" in report.findings[0].message
    assert "too few arguments" in report.findings[1].message
    assert report.code == {"cuda": CodeCounts(built=1, failed=2)}
