"""The toolchain of an image: what its description says, and whose files are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.builder.binary import binary_calls
from harness.builder.build import build
from harness.builder.diagnostics import header_advice
from harness.builder.elf import LoadedLibraries, SharedLibrary, unresolved
from harness.builder.toolchain import (
    Description,
    Toolchain,
    describe_toolchain,
    find_toolchain,
    toolchain_of_image,
)
from harness.errors import SandboxError
from tests.fakes.libraries import shared_library
from tests.fakes.projects import fake_toolchain, project
from tests.fakes.sandbox import FakeSandbox, exit_facts


@pytest.fixture(scope="module")
def described() -> bytes:
    """This machine, described as an image is."""
    return describe_toolchain().encode()


def mirror(view: Path, description: bytes) -> Path:
    """A view in which links to this machine's directories stand for copies of them."""
    listed = Description.model_validate_json(description).view
    for tree in listed.trees:
        place = view / tree.path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(tree.path)
    for path, target in listed.links.items():
        place = view / path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * (len(path.parts) - 2)
        place.symlink_to(up + target.lstrip("/") if target.startswith("/") else target)
    return view


def test_a_description_gives_the_same_toolchain_with_another_root(described, tmp_path):
    """Paths stay those of the image; only where they are read differs, and the facts do not."""
    here, there = find_toolchain(), toolchain_of_image(described, tmp_path)
    assert there.model_copy(update={"root": here.root}) == here
    assert there.root == tmp_path and there.in_image and not here.in_image
    assert there.facts() == here.facts() and there.digest == here.digest
    assert there.local(Path("/usr/lib")) == tmp_path / "usr/lib" and here.local(Path("/usr")) == Path("/usr")


def test_the_view_is_without_links_and_small(described):
    """What is copied has no link on its way, and no place is listed of which nothing is wanted."""
    view = Description.model_validate_json(described).view
    for tree in view.trees:
        assert tree.path == tree.path.resolve()
        assert tree.path.is_file() or any(tree.path.glob(tree.names))
    for path, target in view.links.items():
        assert path.parent == path.parent.resolve() and str(path.readlink()) == target


def test_nothing_of_this_machine_is_shown_to_a_job_in_an_image(tmp_path):
    """A directory of the same name is another one: the image brings its own."""
    toolchain = fake_toolchain(tmp_path).model_copy(update={"disassembler": tmp_path / "bin"})
    assert toolchain.readable("cuda") != [] and toolchain.readable_tools() == [tmp_path / "bin"]
    there = toolchain.model_copy(update={"root": tmp_path / "view"})
    assert there.readable("cuda") == [] and there.readable_tools() == []
    sandbox = FakeSandbox(exit_facts("oom"))
    build(project(), "cpu", sandbox=sandbox, toolchain=there, cache=tmp_path / "cache")
    assert sandbox.jobs and all(tmp_path / "torch" not in job.readable for job in sandbox.jobs)
    assert all("/usr" not in map(str, job.readable) for job in sandbox.jobs)


def test_symbols_are_looked_up_in_the_image(described, tmp_path):
    """Through the view they are found as they are here; without it nothing is said of any."""
    source = (
        "extern int aoti_torch_get_dim(void*, long*); extern int mine(void);"
        "int f(void) { return mine() + aoti_torch_get_dim(0, 0); }"
    )
    here = find_toolchain()
    if here.torch_root is None:
        pytest.skip("needs torch (pip install torch)")
    flags = (f"-L{here.torch_root / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu")
    data = shared_library(tmp_path, source, flags=flags)
    there = toolchain_of_image(described, mirror(tmp_path / "view", described))
    assert LoadedLibraries(SharedLibrary(data), there).missing == []
    assert unresolved(SharedLibrary(data), "cpu", there) == unresolved(SharedLibrary(data), "cpu", here)
    assert unresolved(SharedLibrary(data), "cpu", there)[0] == ["mine"]
    sandbox = FakeSandbox(exit_facts("ok"))
    empty = toolchain_of_image(described, tmp_path / "nothing")
    assert binary_calls(data, "cpu", empty, sandbox) is None


def test_advice_on_headers_is_of_the_image(tmp_path):
    """torch's headers are looked up where they can be read."""
    toolchain = fake_toolchain(tmp_path / "not here").model_copy(update={"root": tmp_path / "view"})
    assert toolchain.torch_root is not None
    header = toolchain.local(toolchain.torch_root) / "include/torch/csrc/stable/library.h"
    header.parent.mkdir(parents=True)
    header.touch()
    text = header_advice("torch/stable/library.h", {}, "cpu", toolchain.local(toolchain.torch_root))
    assert "<torch/csrc/stable/library.h>" in text


def changed(described: bytes, **fields: object) -> bytes:
    """A description in which the toolchain says something else."""
    values = json.loads(described)
    values["toolchain"] |= fields
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"python": "python3"},
        {"gxx": "/usr/bin/../../evil/g++"},
        {"torch_root": 3},
        {"libraries": ["lib"]},
        {"surprise": 1},
        {"platform": None},
    ],
    ids=str,
)
def test_a_description_that_makes_no_sense_is_refused(fields, described, tmp_path):
    """Relative paths, paths through a parent, unknown fields: make the image again."""
    with pytest.raises(SandboxError, match="make image"):
        toolchain_of_image(changed(described, **fields), tmp_path)


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"{}", b" " * ((1 << 20) + 1), b"[" * 100_000])
def test_what_is_no_description_is_refused(text, tmp_path):
    """Whatever the bytes are, it is one error of ours."""
    with pytest.raises(SandboxError, match="make image"):
        toolchain_of_image(text, tmp_path)


def test_the_root_is_ours_to_say(described, tmp_path):
    """A description cannot point the trusted side at another place."""
    found = toolchain_of_image(changed(described, root="/etc"), tmp_path)
    assert isinstance(found, Toolchain) and found.root == tmp_path
