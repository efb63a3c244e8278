"""Precompiled headers: exactly what a unit begins with, the same object, never another verdict."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from harness.builder.build import Built, build
from harness.builder.flags import header_argv
from harness.builder.layout import Layout, plan_layout
from harness.builder.reuse.precompiled import PrecompiledHeaders, leading_headers
from harness.builder.toolchain import Toolchain, find_toolchain
from harness.outcome import Cause
from harness.records import Project
from sandboxes.caged import CagedSandbox
from sandboxes.local import LocalBackend
from tests.fakes.projects import FILES, fake_toolchain, project, toml_of
from tests.fakes.sandbox import FakeSandbox, exit_facts

BINDING = "torch-ext/torch_binding.cpp"
HEADER = {'"kernels/fill.h"]\nstable': '"kernels/fill.h", "torch-ext/torch_binding.h"]\nstable'}


def layout_of(tmp_path: Path, changes: dict[str, str | None], toml: dict[str, str] | None = None) -> Layout:
    """The tiny project for the CPU with changes."""
    given = project(changes, toml=toml)
    layout = plan_layout(given, toml_of(given), "cpu", fake_toolchain(tmp_path))
    assert isinstance(layout, Layout), layout
    return layout


def leading(tmp_path: Path, text: str, header: str = "") -> tuple[str, ...]:
    """The leading headers of a binding `text` beside torch_binding.h with the text `header`."""
    changes: dict[str, str | None] = {BINDING: text, "torch-ext/torch_binding.h": header}
    layout = layout_of(tmp_path, changes, HEADER)
    return leading_headers(layout.units.units[0], layout)


LIBRARY = "#include <torch/library.h>\n"
REGISTRATION = '#include "registration.h"\n'
OWN = '#include "torch_binding.h"\n'
TORCH = "#pragma once\n\n#include <torch/torch.h>\n\nvoid f(torch::Tensor&);\n#include <torch/all.h>\n"


@pytest.mark.parametrize(
    ("text", "header", "found"),
    [
        (f"// a\n/* b\n */\n{LIBRARY}int x;\n", "", ["<torch/library.h>"]),
        (f"{LIBRARY}\n{REGISTRATION}{OWN}int x;\n", TORCH,
         ["<torch/library.h>", '"registration.h"', "<torch/torch.h>"]),
        (f"#include <vector>\n{LIBRARY}#include <map>\n", "", ["<vector>", "<torch/library.h>"]),
        (f"{LIBRARY}{REGISTRATION}{OWN}", "int x;\n", ["<torch/library.h>"]),
        (f'#include "torch/library.h"\n{OWN}#include <ATen/ATen.h>\n', "#pragma once\n",
         ["<torch/library.h>", "<ATen/ATen.h>"]),
        (f"{LIBRARY}{OWN}{LIBRARY}", f"{REGISTRATION}{LIBRARY}", ["<torch/library.h>"]),
        (f"{REGISTRATION}{LIBRARY}", "", []),
        (f"{OWN}{LIBRARY}", "#ifndef GUARD\n#define GUARD\n#endif\n", []),
        (f"#define X\n{LIBRARY}", "", []),
        (f"using namespace std; {LIBRARY}", "", []),
        ("#include <vector>\nint x;\n", "", []),
        (f"#include <cassert>\n{LIBRARY}", "", []),
        (f"#include <unknown.h>\n{LIBRARY}", "", []),
        (f"{OWN}{LIBRARY}", OWN, []),
        ("#if 1\n" + LIBRARY, "", []),
        ("", "", []),
    ],
)  # fmt: skip
def test_only_what_comes_first_counts(text, header, found, tmp_path):
    """Includes in their order, into project headers, until any other line; it must begin with <...>."""
    assert list(leading(tmp_path, text, header)) == found


def test_a_projects_own_torch_header_is_not_torchs(tmp_path):
    """What a unit's directories hold is found first."""
    source = 'src = ["torch-ext/torch_binding.cpp", '
    toml = {source: f'include = ["own"]\n{source}"own/torch/library.h", '}
    layout = layout_of(tmp_path, {BINDING: LIBRARY, "own/torch/library.h": ""}, toml)
    assert leading_headers(layout.units.units[0], layout) == ()


MADE = {"header/piece-00": b"first ", "header/piece-01": b"second", "header/dependencies": b"first.h: a.h"}
HEAVY = {BINDING: f"{LIBRARY}int x;\n"}


def test_that_of_the_stable_abi_is_made_at_once(tmp_path):
    """One job of g++ without a byte of the project, so that the second project of a run has it."""
    layout = layout_of(tmp_path, {})
    sandbox = FakeSandbox(exit_facts("ok"), dict(MADE))
    headers = PrecompiledHeaders(tmp_path / "cache", fake_toolchain(tmp_path), sandbox)
    unit = layout.units.units[0]
    place = headers.directory(unit, layout)
    assert place is not None and len(sandbox.jobs) == 1
    assert (place / "torch/csrc/stable/library.h.gch").read_bytes() == b"first second"
    assert (place / "torch/csrc/stable/library.h").read_text() == (
        "#include_next <torch/csrc/stable/library.h>\n"
    )
    assert sandbox.inputs[0]["header/first.h"] == (
        "#include <torch/csrc/stable/library.h>\n#include <torch/csrc/stable/tensor.h>\n"
    )
    assert not any("TORCH_EXTENSION_NAME" in word for word in sandbox.jobs[0].argv)
    assert headers.directory(unit, layout) == place and len(sandbox.jobs) == 1


def test_a_heavy_one_is_made_when_it_would_have_paid(tmp_path):
    """Making it takes three times what it saves: the first three units start nothing."""
    layout = layout_of(tmp_path, dict(HEAVY))
    sandbox = FakeSandbox(exit_facts("ok"), dict(MADE))
    headers = PrecompiledHeaders(tmp_path / "cache", fake_toolchain(tmp_path), sandbox)
    unit = layout.units.units[0]
    assert [headers.directory(unit, layout) for _ in range(3)] == [None] * 3 and sandbox.jobs == []
    place = headers.directory(unit, layout)
    assert place is not None and (place / "torch/library.h.gch").is_file() and len(sandbox.jobs) == 1


@pytest.mark.parametrize(("status", "jobs"), [("nonzero", 1), ("oom", 2), ("wall_timeout", 2)])
def test_one_that_gxx_refuses_is_not_tried_again(status, jobs, tmp_path):
    """The build goes on without; after a limit it is tried again when it was wanted as often again."""
    layout = layout_of(tmp_path, dict(HEAVY))
    sandbox = FakeSandbox(exit_facts(status))
    headers = PrecompiledHeaders(tmp_path / "cache", fake_toolchain(tmp_path), sandbox)
    assert [headers.directory(layout.units.units[0], layout) for _ in range(8)] == [None] * 8
    assert len(sandbox.jobs) == jobs


def test_flags_of_its_own_rule_it_out(tmp_path):
    """g++ would not use it: another instruction set, another optimisation, another standard."""
    source = 'src = ["torch-ext/torch_binding.cpp"'
    sandbox = FakeSandbox(exit_facts("ok"), {"header/piece-00": b"x", "header/dependencies": b"a.h"})
    headers = PrecompiledHeaders(tmp_path / "cache", fake_toolchain(tmp_path), sandbox)
    for flag, used in (("-Wall", True), ("-DX=1", True), ("-mavx2", False), ("-O2", False), ("-g", False)):
        layout = layout_of(tmp_path, {}, {source: f'cxx-flags = ["{flag}"]\n{source}'})
        places = [headers.directory(layout.units.units[0], layout) for _ in range(2)]
        assert (places[1] is not None) == used, flag


def test_a_shadowed_header_rules_it_out(tmp_path):
    """A project's own `c10/x.h`, in a directory of the unit, would have come first inside torch's."""
    source = 'src = ["torch-ext/torch_binding.cpp", '
    layout = layout_of(tmp_path, {"c10/x.h": ""}, {source: f'include = ["."]\n{source}"c10/x.h", '})
    for used, there in ((b"first.h: /torch/c10/x.h", False), (b"first.h: /torch/c10/y.h", True)):
        sandbox = FakeSandbox(exit_facts("ok"), {"header/piece-00": b"x", "header/dependencies": used})
        headers = PrecompiledHeaders(tmp_path / str(there), fake_toolchain(tmp_path), sandbox)
        places = [headers.directory(layout.units.units[0], layout) for _ in range(2)]
        assert (places[1] is not None) == there


# --- with the real g++ -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Toolchain:
    """This machine's."""
    toolchain = find_toolchain()
    if toolchain.missing("cpu") is not None:
        pytest.skip(str(toolchain.missing("cpu")))
    return toolchain


def really(given: Project, toolchain: Toolchain, cache: Path) -> Built:
    return build(given, "cpu", sandbox=CagedSandbox(LocalBackend()), toolchain=toolchain, cache=cache)


def library_of(built: Built) -> str:
    """Digest of the shared library."""
    assert built.package is not None, built.result.finding
    return hashlib.sha256(next(built.package.glob("*.abi3.so")).read_bytes()).hexdigest()


@pytest.mark.slow
def test_object_and_verdict_are_the_same_with_and_without(real, tmp_path):
    """A library has the same bytes as in a cache whose precompiled header is marked as refused; a binding
    that forgets an include fails in both, with the same message."""
    text = FILES[BINDING]
    assert text is not None
    included = "#include <torch/csrc/stable/tensor.h>\n"
    # Not in <torch/csrc/stable/library.h>: the first line alone must not bring in more.
    bad = project({BINDING: text.replace(included, included + "static std::regex pattern;\n")})
    warm, cold = tmp_path / "warm", tmp_path / "cold"
    library = library_of(really(project(), real, warm))
    entries = [p for p in warm.glob("headers/*/*") if p.is_dir()]
    assert len(entries) == 1 and (entries[0] / "torch/csrc/stable/library.h.gch").is_file()
    (cold / entries[0].relative_to(warm)).mkdir(parents=True)
    assert library_of(really(project(), real, cold)) == library
    assert not list(cold.glob("headers/*/*/torch"))
    findings = [really(bad, real, cache).result.finding for cache in (warm, cold)]
    assert findings[0] is not None and findings[0].cause is Cause.COMPILE_ERROR
    assert findings[0] == findings[1] and "regex" in findings[0].message


def used(source: str, place: Path, toolchain: Toolchain, folder: Path) -> bool:
    """Whether g++ takes the precompiled header in `place` for `source` (-H marks it with `!`)."""
    given = project()
    layout = plan_layout(given, toml_of(given), "cpu", toolchain)
    assert isinstance(layout, Layout)
    argv = header_argv(layout, toolchain)
    first = argv.index("-isystem")
    file = folder / "x.cpp"
    file.write_text(source)
    words = [*argv[:first], "-isystem", str(place), *argv[first:], "-DTORCH_EXTENSION_NAME=x", "-H"]
    done = subprocess.run(
        [*words, "-c", str(file), "-o", str(folder / "x.o")], capture_output=True, text=True, check=True
    )
    return done.stderr.startswith("! ")


@pytest.mark.slow
def test_gxx_uses_it_and_checks_macros(real, tmp_path):
    """A macro that the header looks at makes g++ leave it unused; the extension's name does not."""
    warm = tmp_path / "cache"
    for text in "12":
        assert really(project({"README.md": text}), real, warm).result.ok
    place = next(warm.glob("headers/*/*/torch"))
    header = "#include <torch/csrc/stable/library.h>\n"
    assert used(header, place.parent, real, tmp_path)
    assert not used("#define C10_ALWAYS_INLINE inline\n" + header, place.parent, real, tmp_path)
