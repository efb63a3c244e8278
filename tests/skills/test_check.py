"""Checking a whole skill: the specification, and the code that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.builder.allowed_flags import screen
from harness.outcome import Cause
from harness.records import BuildResult, Finding, Project, Target
from harness.skills.check import SkillReport, catalog_line, check_skill, skill_size
from harness.skills.code_blocks import code_blocks, shown_projects
from harness.skills.spec import read_skill
from harness.text import estimate_tokens
from tests.fakes.skills import make_skill
from tests.fakes.trials import build_result

SHIPPED = Path(__file__).parents[2] / "skills" / "cuda-kernel-builder"

BUILD_TOML = """\
[general]
name = "my-op"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "metal"]
[torch]
src = []
[kernel.my_op]
backend = "cpu"
depends = ["torch"]
src = []
"""


def built(project: Project, target: Target, finding: Finding | None = None) -> BuildResult:
    return build_result(finding, backend=target, key=project.digest)


def faults(report: SkillReport) -> list[tuple[str, int | None, str]]:
    """File, line and severity of each finding."""
    return [(f.file, f.line, f.severity) for f in report.findings]


def test_a_project_is_built_for_each_target_that_we_know(tmp_path: Path) -> None:
    """The caller's build function gets the project as a student would have sent it, once for each target."""
    directory = make_skill(tmp_path, f"```toml build.toml\n{BUILD_TOML}```\n```cpp x.cpp\nint x;\n```\n")
    calls: list[tuple[list[str], Target]] = []

    def build(project: Project, target: Target) -> BuildResult:
        calls.append(([f.path for f in project.files], target))
        return built(project, target)

    report = check_skill(directory, build=build)
    assert calls == [(["build.toml", "x.cpp"], "cpu")]
    assert report.ok
    (shown,) = report.projects
    assert (shown.name, shown.line, shown.targets, shown.builds[0].ok) == ("my-op", 5, ("cpu",), True)
    assert SkillReport.model_validate_json(report.model_dump_json()) == report


def test_a_failed_build_is_an_error_at_the_project(tmp_path: Path) -> None:
    """A skill that teaches a project which does not build is not ok."""
    directory = make_skill(tmp_path, f"\n```toml build.toml\n{BUILD_TOML}```\n")
    finding = Finding(cause=Cause.COMPILE_ERROR, message="x.cpp:1: no")
    report = check_skill(directory, build=lambda p, t: built(p, t, finding))
    assert faults(report) == [("SKILL.md", 6, "error")]
    assert "does not build for cpu: x.cpp:1: no" in report.findings[-1].message
    assert not report.ok


def test_a_wrong_build_toml_is_reported_in_upstreams_words_and_never_built(tmp_path: Path) -> None:
    """The form that circulates in old posts is refused, with the parser's own reason."""
    wrong = BUILD_TOML.replace("[torch]", '[general.cuda]\ncapabilities = ["9.0"]\n[torch]')

    def build(project: Project, target: Target) -> BuildResult:
        raise AssertionError("must not be built")

    report = check_skill(make_skill(tmp_path, f"```toml build.toml\n{wrong}```\n"), build=build)
    (finding,) = [f for f in report.findings if f.severity == "error"]
    assert finding.line == 5
    assert "capabilities" in finding.message
    assert report.projects[0].name is None
    assert str(report.findings[-1]).startswith("SKILL.md:5: error: build.toml is not valid")


def test_python_must_parse(tmp_path: Path) -> None:
    """A complete file that does not parse is an error, a fragment a warning, both at the faulty line."""
    pieces = ("pkg/a.py\nx = 1\ndef f(:", "\n    y = (", "\n    indented = 1", "\n>>> 1 +")
    body = "".join(f"```python {piece}\n```\n" for piece in pieces)
    directory = make_skill(tmp_path, body)
    (directory / "scripts").mkdir()
    (directory / "scripts" / "run.py").write_text("pass\nreturn = 1\n")
    (directory / "scripts" / "latin.py").write_bytes(b"# \xe9\n")
    assert faults(check_skill(directory)) == [
        ("SKILL.md", 7, "error"),
        ("SKILL.md", 10, "warning"),
        ("scripts/latin.py", 1, "warning"),
        ("scripts/run.py", 2, "error"),
    ]


def test_an_unreadable_skill_gives_a_report_with_errors(tmp_path: Path) -> None:
    """No SKILL.md, no directory, or no UTF-8: the report says so and has no name."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    (tmp_path / "empty").mkdir()
    for name in ("bad", "empty", "absent"):
        report = check_skill(tmp_path / name)
        assert (report.name, report.digest, report.ok) == (None, None, False)


def test_the_shipped_skill_shows_one_project_for_both_targets() -> None:
    """Our own skill has no finding at all, and its example serves the targets that we grade."""
    report = check_skill(SHIPPED)
    assert faults(report) == []
    (shown,) = report.projects
    assert (shown.name, shown.targets) == ("scale-add", ("cuda", "cpu"))
    assert report.body_tokens_estimate is not None
    assert report.body_tokens_estimate < 5_000


def test_the_shipped_skill_advises_only_flags_that_we_pass_on() -> None:
    """A student who follows the advice is not refused for a compiler flag."""
    text = (SHIPPED / "SKILL.md").read_text()
    advised = {"-ffast-math", "-mavx2", "-mfma", "-fno-math-errno", "-fno-trapping-math"}
    named = set(re.findall(r"(?<![\w-])-[fm][a-z][a-z0-9-]+", text)) - {"-march"}
    assert named == advised
    assert screen(sorted(named), nvcc=False).refused is None


@pytest.mark.parametrize(("body", "line"), [("```bash\nmake\n", 5), ("text\n~~~~\nx\n~~~\n", 6)])
def test_a_fence_that_is_not_closed_is_an_error_at_its_line(tmp_path: Path, body: str, line: int) -> None:
    """Also in languages that nobody reads."""
    report = check_skill(make_skill(tmp_path, body))
    assert [(f.file, f.line, f.severity) for f in report.findings] == [("SKILL.md", line, "error")]
    assert "not closed" in report.findings[0].message and not report.ok


DOCUMENT = """\
# Title

```toml build.toml
a = 1
```

Text, then a file:

```cpp path=torch-ext/torch_binding.cpp
int x;
```

```cuda
__global__ void fragment() {}
```

````md
```python not/a/file.py
```
````

```cpp ../x.cpp fragment
```

```py torch-ext/pkg/__init__.py
y = 2
```
"""


def test_blocks_keep_language_path_and_line() -> None:
    """A block with a safe path is a complete file, others are pieces; a fence in a fence is text."""
    blocks = code_blocks("SKILL.md", DOCUMENT)
    assert [(b.line, b.language, b.path) for b in blocks] == [
        (3, "toml", "build.toml"),
        (9, "cpp", "torch-ext/torch_binding.cpp"),
        (13, "cuda", None),
        (17, "md", None),
        (22, "cpp", None),
        (25, "python", "torch-ext/pkg/__init__.py"),
    ]
    assert [b.fragment for b in blocks] == [False] * 4 + [True, False]
    assert (blocks[0].text, blocks[0].text_line) == ("a = 1\n", 4)
    assert code_blocks("a.md", "") == []


def test_the_complete_files_of_a_document_make_up_projects() -> None:
    """Each further build.toml starts a project, the last version of a file counts, lone files are none."""
    (shown,) = shown_projects(code_blocks("SKILL.md", DOCUMENT))
    assert shown.build_toml.line == 3
    assert [f.path for f in shown.project.files] == [
        "build.toml",
        "torch-ext/pkg/__init__.py",
        "torch-ext/torch_binding.cpp",
    ]
    one = "```toml build.toml\na = 1\n```\n```cpp x.cpp\n1\n```\n```cpp x.cpp\n2\n```\n"
    first, second = shown_projects(code_blocks("a.md", one + "```toml build.toml\na = 2\n```\n"))
    assert [(f.path, f.text) for f in first.project.files] == [("build.toml", "a = 1\n"), ("x.cpp", "2\n")]
    assert [(f.path, f.text) for f in second.project.files] == [("build.toml", "a = 2\n")]
    assert shown_projects(code_blocks("a.md", "```cpp x.cpp\n1\n```\n")) == []


def test_every_part_is_counted_once(tmp_path: Path) -> None:
    """Catalog line, body without frontmatter, and each file; what is no text has no figure."""
    files = {"references/a.md": "a" * 36, "references/b.md": "b" * 72, "other/c.txt": "c" * 18}
    directory = make_skill(tmp_path, "\nBody.\n", {**files, "scripts/x.bin": "\0"})
    skill = read_skill(directory)
    assert catalog_line(skill) == "- my-skill: d"
    size = skill_size(skill)
    assert (size.catalog, size.body) == (estimate_tokens("- my-skill: d"), estimate_tokens("Body."))
    tokens = {"other/c.txt": 5, "references/a.md": 10, "references/b.md": 20, "scripts/x.bin": None}
    assert {f.path: f.tokens for f in size.files} == tokens
    assert [f.path for f in size.in_folder("references")] == ["references/a.md", "references/b.md"]
    assert [f.path for f in size.in_folder(None)] == ["other/c.txt"]
    assert size.total == size.catalog + size.body + 35
    assert [estimate_tokens(text) for text in ("", "x", "ü" * 18)] == [0, 1, 10]  # UTF-8 bytes / 3.6
