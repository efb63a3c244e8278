"""Shared objects: what is stored, when it is used, and that nothing is compiled twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.builder.build import Built, build
from harness.builder.failure.log import TREE
from harness.builder.flags import object_path
from harness.builder.layout import Layout, plan_layout
from harness.builder.reuse.objects import ObjectStore, object_keys
from harness.builder.toolchain import Toolchain
from harness.outcome import Cause
from harness.records import Project
from tests.fakes.projects import fake_toolchain, project, toml_of
from tests.fakes.sandbox import FakeSandbox, exit_facts

BINDING, KERNEL = "obj/torch-ext/torch_binding.cpp/unit.o", "obj/kernels/fill.cpp/unit.o"
CHANGED = {"torch-ext/torch_binding.cpp": "// TORCH_EXTENSION_NAME\n"}


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """Good for planning; nothing in it can run."""
    return fake_toolchain(tmp_path / "toolchain")


def keys_of(given: Project, toolchain: Toolchain) -> dict[str, str]:
    """Keys of the objects for the CPU."""
    layout = plan_layout(given, toml_of(given), "cpu", toolchain)
    assert isinstance(layout, Layout), layout
    assert list(object_keys(layout, toolchain)) == [object_path(u) for u in layout.units.units]
    return object_keys(layout, toolchain)


def compiling(
    given: Project, *finished: str, status: str = "ok", output: str = "", code: int = 0
) -> FakeSandbox:
    """A sandbox in which ninja made the objects `finished`, and the library where all went well."""
    log = "# ninja log v7\n" + "".join(f"0\t1500\t1\t{path}\tff\n" for path in finished)
    files = {f"{TREE}/.ninja_log": log.encode()}
    files |= {f"{TREE}/{path}": b"object of " + path.encode() for path in (BINDING, KERNEL)}
    files |= {f"{TREE}/{path}.log": f"{path}: warning: w\n".encode() for path in (BINDING, KERNEL)}
    if status == "ok":
        files[f"{TREE}/lib/_fill_it_cpu_{given.digest[:7]}.abi3.so"] = b"\x7fELF..."
    return FakeSandbox(exit_facts(status, output, code), files)  # type: ignore[arg-type]


def run(sandbox: FakeSandbox, given: Project, toolchain: Toolchain, tmp_path: Path) -> Built:
    """Build for the CPU."""
    log = tmp_path / "build.log"
    return build(given, "cpu", sandbox=sandbox, toolchain=toolchain, cache=tmp_path / "cache", log=log)


def test_the_key_follows_what_the_unit_can_see(toolchain, tmp_path):
    """Another binding leaves the kernel's object as it is; a header, a flag, a toolchain do not."""
    base = keys_of(project(), toolchain)
    assert keys_of(project({"README.md": "x"}), toolchain)[KERNEL] == base[KERNEL]
    assert keys_of(project(CHANGED), toolchain)[KERNEL] == base[KERNEL]
    source = 'src = ["kernels/fill.cpp"'
    different = [
        keys_of(project(CHANGED), toolchain)[BINDING] != base[BINDING],
        keys_of(project({"README.md": "x"}), toolchain)[BINDING] != base[BINDING],
        keys_of(project({"kernels/fill.h": "#pragma once\n"}), toolchain)[KERNEL] != base[KERNEL],
        keys_of(project(toml={source: f'cxx-flags = ["-O2"]\n{source}'}), toolchain)[KERNEL] != base[KERNEL],
        keys_of(project(), fake_toolchain(tmp_path / "toolchain", torch="2.12.0+cpu"))[KERNEL]
        != base[KERNEL],
    ]
    assert all(different), different


def test_the_second_project_compiles_only_what_differs(toolchain, tmp_path):
    """The kernel's object lies ready in the tree, ninja has no step for it, the log has its warnings."""
    first, second = project(), project(CHANGED)
    run(compiling(first, BINDING, KERNEL), first, toolchain, tmp_path)
    sandbox = compiling(second, BINDING)
    assert run(sandbox, second, toolchain, tmp_path).result.ok
    ninja = sandbox.inputs[0][f"{TREE}/build.ninja"]
    assert f"build {BINDING}:" in ninja and f"build {KERNEL}:" not in ninja
    assert sandbox.inputs[0][f"{TREE}/{KERNEL}"] == f"object of {KERNEL}"
    assert f"{TREE}/{BINDING}" not in sandbox.inputs[0]
    log = (tmp_path / "build.log").read_text()
    assert f"[ready] {KERNEL}" in log and f"{KERNEL}: warning: w" in log


def test_what_compiled_beside_an_error_is_kept(toolchain, tmp_path):
    """The next attempt of a project with one bad file compiles that file only."""
    given = project()
    output = f"FAILED: [code=1] {BINDING} \ng++ -c x\nsource/torch-ext/torch_binding.cpp:1:1: error: e\n"
    sandbox = compiling(given, KERNEL, status="nonzero", output=output, code=1)
    finding = run(sandbox, given, toolchain, tmp_path).result.finding
    assert finding is not None and finding.cause is Cause.COMPILE_ERROR
    keys = keys_of(given, toolchain)
    store = ObjectStore(tmp_path / "cache")
    assert store.load(keys[KERNEL]) is not None and store.load(keys[BINDING]) is None


@pytest.mark.parametrize("status", ["oom", "wall_timeout", "disk_limit"])
def test_a_limit_leaves_nothing(status, toolchain, tmp_path):
    """What was being written then may be half an object."""
    given = project()
    run(compiling(given, BINDING, KERNEL, status=status), given, toolchain, tmp_path)
    keys = keys_of(given, toolchain)
    assert all(ObjectStore(tmp_path / "cache").load(key) is None for key in keys.values())


def test_what_is_ready_is_not_called_unfinished(toolchain, tmp_path):
    """A time-out names the files that were being compiled, not those that were there."""
    first, second = project(), project(CHANGED)
    run(compiling(first, BINDING, KERNEL), first, toolchain, tmp_path)
    finding = run(compiling(second, status="wall_timeout"), second, toolchain, tmp_path).result.finding
    assert finding is not None and "torch_binding.cpp" in finding.message
    assert "fill.cpp" not in finding.message


def test_a_damaged_object_is_made_again(tmp_path):
    """A byte that changed is noticed, and the entry can be replaced."""
    store = ObjectStore(tmp_path)
    store.store("ab" * 32, b"object", b"w\xff\n")
    found = store.load("ab" * 32)
    assert found is not None and found.path.read_bytes() == b"object" and found.log == "w�\n"
    found.path.write_bytes(b"other")
    assert store.load("ab" * 32) is None
    store.store("ab" * 32, b"object", b"")
    assert store.load("ab" * 32) is not None


def test_who_comes_second_waits_and_finds_it(tmp_path):
    """Two builds want the same two objects, in any order: one makes both, the other gets both."""
    keys = {"a": "aa" * 32, "b": "bb" * 32}
    made: list[str] = []

    def one(wanted: dict[str, str]) -> None:
        store = ObjectStore(tmp_path)
        with store.claimed(wanted) as ready:
            for path, key in wanted.items():
                if path not in ready:
                    made.append(path)
                    store.store(key, b"x", b"")

    threads = [
        threading.Thread(target=one, args=(dict(order),))
        for order in [keys.items(), reversed(keys.items())] * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == ["a", "b"]


def test_a_failed_build_does_not_keep_the_claim(tmp_path):
    """Whoever waited makes it instead."""
    store = ObjectStore(tmp_path)
    with pytest.raises(ZeroDivisionError), store.claimed({"a": "aa" * 32}):
        raise ZeroDivisionError
    with ObjectStore(tmp_path).claimed({"a": "aa" * 32}) as ready:
        assert ready == {}
