"""Projects that depend on CUTLASS: their headers, and the message if there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.commands import compile_argv
from harness.builder.headers import MEANT, ON_PYPI, choose_cutlass, find_cutlass
from harness.builder.toolchain import Toolchain
from harness.outcome import Cause
from harness.records import Project
from tests.fakes.projects import fake_toolchain, fetched_headers, planned, project, refused

CUDA_KERNEL = 'backend = "cuda"\ndepends = ["torch"]'


FILES = ("include/cutlass/version.h", "tools/util/include/cutlass/util.h")


def depending(*names: str) -> Project:
    """The tiny project, whose CUDA kernel depends on `names`."""
    wanted = ", ".join(f'"{name}"' for name in ("torch", *names))
    return project(toml={CUDA_KERNEL: f'backend = "cuda"\ndepends = [{wanted}]'})


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """With fetched headers for cutlass_3_6 and cutlass_4_0."""
    for name in ("cutlass_3_6", "cutlass_4_0"):
        fetched_headers(tmp_path / "headers", name, *FILES)
    found = find_cutlass({}, tmp_path / "headers")
    return fake_toolchain(tmp_path / "toolchain").model_copy(update={"cutlass": found})


def test_all_files_of_the_project_see_cutlass(toolchain, tmp_path):
    """As in kernel-builder the binding too; last in the search, and mapped to a name without a path."""
    layout = planned(depending("cutlass_3_6"), "cuda", toolchain)
    root = tmp_path / "headers/cutlass_3_6"
    for unit in layout.units.units:
        argv = compile_argv(unit, layout, toolchain)
        searched = [argv[n + 1] for n, word in enumerate(argv) if word == "-isystem"]
        assert searched[-3:] == [str(root / "include"), str(root / "tools/util/include"), "stubs"]
        assert f"-ffile-prefix-map={root}=cutlass" in argv
    assert root / "include" in toolchain.readable("cuda")
    assert not any("CUTLASS" in warning for warning in layout.warnings)


def test_another_version_than_the_one_meant_is_named(toolchain):
    """cutlass_4_0 gets 4.2.0, which the record says."""
    layout = planned(depending("cutlass_4_0"), "cuda", toolchain)
    assert "cutlass_4_0 means CUTLASS 4.0.0; 4.2.0 is used, the nearest that PyPI has" in layout.warnings


@pytest.mark.parametrize("name", ["cutlass_3_5", "cutlass_4_5"])
def test_missing_headers_are_the_machines_fault(name, toolchain):
    """The finding names the kernel, and the command or the variable that helps."""
    finding = refused(depending(name), "cuda", toolchain)
    assert finding.cause is Cause.NO_TOOLCHAIN
    assert f"[kernel.fill_cuda] depends on {name}" in finding.message
    assert f"CUTLASS_SRC_DIR to a checkout of CUTLASS {MEANT[name]}" in finding.message
    assert (f"`liftbench headers {name}`" in finding.message) == (name in ON_PYPI)


def test_cutlass_src_dir_comes_first_and_serves_every_version(tmp_path):
    """As in kernel-builder's CMake project; its contents decide the digest."""
    fetched_headers(tmp_path / "headers", "cutlass_3_6", *FILES)
    env = {"CUTLASS_SRC_DIR": str(fetched_headers(tmp_path, "source", *FILES).root)}
    found = find_cutlass(env, tmp_path / "headers")
    assert [one.name for one in found] == ["CUTLASS_SRC_DIR", "cutlass_3_6"]
    assert choose_cutlass("cutlass_3_6", found)[0] == choose_cutlass("cutlass_3_9", found)[0] == found[0]
    toolchain = fake_toolchain(tmp_path / "t").model_copy(update={"cutlass": found})
    layout = planned(depending("cutlass_3_9"), "cuda", toolchain)
    assert "cutlass_3_9 means CUTLASS 3.9.2; the checkout in CUTLASS_SRC_DIR is used" in layout.warnings
    (tmp_path / "source/include/cutlass/version.h").write_text("// edited\n")
    assert find_cutlass(env, tmp_path / "headers")[0].digest != found[0].digest
    assert find_cutlass({"CUTLASS_SRC_DIR": str(tmp_path / "absent")}, tmp_path) == ()
