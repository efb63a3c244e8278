"""Anything at all as build.toml, and any files as a project: a Finding or a Layout, never an exception.

The examples are the same in every run (derandomize). What only text can break is fuzzed in this
process; upstream's parser, which is asked in a child per file, gets its examples in batches.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hypothesis", reason="hypothesis is not installed (pip install 'liftbench[dev]')")

from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.builder.blame import NinjaRun
from harness.builder.build_toml import BuildToml
from harness.builder.check_build_toml import faults, hints, read_build_toml
from harness.builder.check_project import Refused
from harness.builder.diagnostics import refusal
from harness.builder.layout import plan_layout
from harness.files import write_files
from harness.outcome import Verdict
from harness.records import Finding, Project, ProjectFile
from tests.fakes.projects import FILES, fake_toolchain, toml_of
from tests.fakes.sandbox import exit_facts
from tests.fakes.toml_documents import FUZZ, ask_in_a_batch, documents, dumped, texts


def judged(data: bytes) -> BuildToml | Finding:
    """By our records alone, as if upstream's parser had accepted it."""
    return read_build_toml(data, upstream=lambda _: None)


def drawn(strategy: st.SearchStrategy[str], count: int) -> list[str]:
    """The first examples of a strategy."""
    found: list[str] = []

    @settings(FUZZ, max_examples=count)
    @given(strategy)
    def take(one: str) -> None:
        found.append(one)

    take()
    return found


@pytest.mark.slow
def test_what_upstream_accepts_fits_our_records(tmp_path: Path) -> None:
    """No valid project can end as a failure of ours."""
    batch = drawn(texts(), 300)
    for text, error in zip(batch, ask_in_a_batch(batch, tmp_path), strict=True):
        if error is None:
            assert isinstance(judged(text.encode()), BuildToml), text


@given(tree=documents())
@settings(FUZZ, max_examples=200)
def test_every_schema_fault_is_explained_with_its_line(tree: dict[str, Any]) -> None:
    """Where the records find a fault there is advice, and all that has a place in the file names it."""
    text = dumped(tree)
    assert tomllib.loads(text) == tree
    wrong = isinstance(judged(text.encode()), Finding)
    assert wrong == bool(faults(tree)) or tree.get("general", {}).get("edition", 5) != 5
    advice = hints(text)
    assert advice or not wrong
    assert len(advice) <= 8 and all(len(line) < 500 for line in advice)


@given(data=st.binary(max_size=200) | texts().map(str.encode))
@settings(FUZZ, max_examples=300)
@example(data=b"[" * 100_000)
@example(data=b"a." * 50_000 + b"a=1")
@example(data=b'a = """' + b'"" ' * 50_000)
@example(data=b"[general]\nversion = " + b"1" * 5_000)
@example(data=b"general = " + b"{a=" * 5_000)
def test_any_bytes_are_judged(data: bytes) -> None:
    """Whatever lies in build.toml is valid or has a finding of the student's."""
    found = judged(data)
    assert isinstance(found, BuildToml) or found.verdict is Verdict.BUILD_FAILED


_PATHS = st.sampled_from(
    [
        *FILES,
        *("kernels", "kernels/extra.h", "kernels/a b.cu", "kernels/$(x).cpp", "../x.cpp", "/etc/x.cpp", ""),
        *("kernels/\n.h", "torch-ext/fill_it/fill_it/x.py", "torch-ext/fill_it/fill_it", "a" * 300 + ".h"),
        *("torch-ext/fill_it/_ops.py", "torch-ext/fill_it/metadata.json", "torch-ext/registration.h"),
        *("torch-ext/fill_it/metadata.json/x.py", "torch-ext/fill_it/E=1,[2].py", "torch-ext/fill_it/é.py"),
        *("tests/test_it.py", "kernels/fill.cpp/x.h", "kernels/$x.h", "kernels/a:b.h", "kernels/a'b.h"),
    ]
)  # fmt: skip
_TEXTS = st.sampled_from(
    [
        *("", '#include "extra.h"\n', "#pragma once\n", "def f(:\n", "/*" * 100, "\x00", "import os\n"),
        *('#include "/etc/shadow"\n', '#line 1 "/usr/include/stdio.h"\n#error x', "\ufeff", "(" * 400),
    ]
)
_OLD = ["src = [", "include", '"kernels/fill.cpp"', 'stable-abi = "2.10"', '"fill-it"', '"cpu", ', "[torch]"]
_NEW = [
    *("", 'src = ["kernels", ', 'pyext = ["json"]', 'pyext = ["py", "json", "h"]', '"../../x.cpp"', '"*"'),
    *('"/x.cpp"', '"kernels/a b.cu"', '"kernels/../kernels/fill.cpp"', '"\\n"', '"torch-ext/registration.h"'),
    *("[torch-noarch]", 'include = ["../.."]\nstable-abi = "2.10"', '"x"', "src = ["),
    '"kernels/fill.cpp", "kernels/fill.cpp/x.h"', '"kernels/fill.cpp", "kernels/$x.h", "kernels/a:b.h"',
]  # fmt: skip
_TOML_CHANGES = st.tuples(st.sampled_from(_OLD), st.sampled_from(_NEW))


@pytest.mark.slow
@given(
    changes=st.dictionaries(_PATHS, st.none() | _TEXTS, max_size=4),
    toml=st.lists(_TOML_CHANGES, max_size=2),
    target=st.sampled_from(["cpu", "cuda"]),
    left_out=st.dictionaries(_PATHS, st.just("is a symbolic link"), max_size=1),
)
@settings(FUZZ, max_examples=120)
def test_any_project_is_planned_or_refused(changes, toml, target, left_out, tmp_path: Path) -> None:
    """Missing, clashing and odd files end in a Finding, or in a Layout that can be written."""
    files = {path: text for path, text in {**FILES, **changes}.items() if text is not None}
    text = files.get("build.toml", "")
    for old, new in toml:
        text = text.replace(old, new, 1)
    files["build.toml"] = text
    if isinstance(judged(text.encode()), Finding):
        return
    project = Project(
        files=tuple(ProjectFile(path=path, text=files[path]) for path in sorted(files)), left_out=left_out
    )
    try:
        planned = plan_layout(project, toml_of(project), target, fake_toolchain(tmp_path))
    except Refused as refused:
        assert refused.finding.verdict in (Verdict.BUILD_FAILED, Verdict.NOT_MEASURED)
        assert refusal(refused.finding, files).message
        return
    root = tmp_path / project.digest / target
    assert not any(".." in Path(path).parts for path in (*planned.tree, *planned.package))
    write_files(planned.tree | planned.package, root)
    failed = NinjaRun(exit_facts("nonzero", text), "", planned, fake_toolchain(tmp_path), lambda: None)
    finding = failed.finding()
    assert finding is not None and finding.verdict is Verdict.BUILD_FAILED
    assert failed.diagnostics(finding)
