"""Staging, generated files and every refusal that needs no compiler."""

from __future__ import annotations

import json

import pytest
from kernels._rust import Metadata

from harness.builder.layout import variant_name
from harness.outcome import Cause
from tests.fakes.projects import BUILD_TOML, fake_toolchain, planned, project, refused

INIT = "torch-ext/fill_it/__init__.py"


def test_only_listed_files_are_staged(toolchain):
    """build.toml, src lists and the Python side; nothing else, and generated files on top."""
    extra = {
        "README.md": "x",
        "kernels/unlisted.h": "x",
        "torch-ext/notes.txt": "x",
        "torch-ext/other/data.json": "{}",
        "torch-ext/fill_it/types.pyi": "",
        "torch-ext/fill_it/layers/__init__.py": "",
        "tests/test_it.py": "",
    }
    layout = planned(project(extra), "cpu", toolchain)
    assert list(layout.tree) == [
        "source/build.toml",
        "source/kernels/fill.cpp",
        "source/kernels/fill.cu",
        "source/kernels/fill.h",
        "source/torch-ext/fill_it/__init__.py",
        "source/torch-ext/fill_it/layers/__init__.py",
        "source/torch-ext/fill_it/types.pyi",
        "source/torch-ext/registration.h",
        "source/torch-ext/torch_binding.cpp",
    ]
    assert list(layout.package) == [
        "__init__.py", "_ops.py", "layers/__init__.py", "metadata.json",
    ]  # fmt: skip


def test_generated_files(toolchain):
    """_ops.py carries the name of this build; stand-ins only for CUDA."""
    given = project()
    layout = planned(given, "cuda", toolchain)
    package = layout.package
    assert layout.ops_name == f"_fill_it_cuda_{given.digest[:7]}"
    assert f"ops = torch.ops.{layout.ops_name}" in package["_ops.py"]
    assert f"from . import {layout.ops_name}" in package["_ops.py"]
    stubs = [path for path in layout.tree if path.startswith("stubs/")]
    assert stubs == ["stubs/c10/cuda/impl/cuda_cmake_macros.h"]
    cpu = planned(given, "cpu", toolchain)
    assert not any(path.startswith("stubs/") for path in cpu.tree)


@pytest.mark.parametrize(
    ("target", "torch", "abi", "expected"),
    [
        ("cpu", "2.13.0+cpu", None, "torch213-cxx11-cpu-x86_64-linux"),
        ("cuda", "2.9.1+cu130", None, "torch29-cxx11-cu130-x86_64-linux"),
        ("cuda", "2.13.0+cpu", (2, 10), "torch-stable-abi210-cu130-x86_64-linux"),
    ],
)
def test_variant_names(target, torch, abi, expected, tmp_path):
    """As kernel-builder names them."""
    assert variant_name(target, fake_toolchain(tmp_path, torch=torch), abi) == expected


SRC = 'src = ["kernels/fill.cu", "kernels/fill.h"]'
CPU_SRC = 'src = ["kernels/fill.cpp", "kernels/fill.h"]'
REFUSALS = {
    "missing file": ({'kernels/fill.h': None}, {}, 'cpu',
        Cause.BAD_LAYOUT, '"kernels/fill.h" does not exist'),
    "absolute": ({}, {SRC: 'src = ["/etc/passwd"]'}, 'cpu', Cause.BAD_LAYOUT, 'stay inside the project'),
    "shell in a name": ({'kernels/$(x).cu': ''}, {SRC: 'src = ["kernels/$(x).cu"]'}, 'cuda',
        Cause.BAD_LAYOUT, 'characters'),
    "file and folder": ({'kernels/fill.cpp/x.h': ''},
        {CPU_SRC: 'src = ["kernels/fill.cpp", "kernels/fill.h", "kernels/fill.cpp/x.h"]'}, 'cpu',
        Cause.BAD_LAYOUT, '"kernels/fill.cpp" is a file, and also the folder of'),
    "name of 300 bytes": ({f"torch-ext/fill_it/{'ä' * 150}.py": ''}, {}, 'cpu',
        Cause.BAD_LAYOUT, 'more than 255 bytes'),
    "py left out": ({}, {'stable-abi = "2.10"': 'pyext = ["json"]'}, 'cpu', Cause.BAD_LAYOUT, 'leaves out'),
    "general name of a backend's dependency": ({},
        {'[torch]': '[general.cuda]\npython-depends = ["einops"]\n[torch]'}, 'cpu',
        Cause.BAD_BUILD_TOML, '"einops" is unknown to kernel-builder here; it belongs under [general]'),
    "generated header listed": ({}, {SRC: 'src = ["torch-ext/registration.h"]'}, 'cuda',
        Cause.BAD_LAYOUT, 'is generated'),
    "no __init__": ({INIT: None}, {}, 'cpu', Cause.BAD_LAYOUT, f'{INIT} is missing'),
    "no kernel": ({}, {'backend = "cpu"': 'backend = "metal"'}, 'cpu', Cause.NO_BACKEND, 'no `cpu` kernel'),
    "sm_90": ({}, {SRC: SRC + '\ncuda-capabilities = ["sm_90"]'}, 'cuda',
        Cause.BAD_BUILD_TOML, 'write it as "9.0"'),
    "tvm-ffi": ({"build.toml": BUILD_TOML.partition("[torch]")[0] + "[tvm-ffi]\nsrc = []\n"}, {}, "cuda",
        Cause.NO_BACKEND, "[tvm-ffi]"),
    "newer CUDA": ({}, {SRC: SRC + '\ncuda-minver = "13.1"'}, 'cuda', Cause.NO_BACKEND, 'no `cuda` kernel'),
    "other GPU": ({}, {SRC: SRC + '\ncuda-capabilities = ["8.0", "10.0"]'}, 'cuda',
        Cause.NO_BACKEND, 'runs on sm_90'),
    "refused flag": ({}, {CPU_SRC: CPU_SRC + '\ncxx-flags = ["-fplugin=x"]'}, 'cpu',
        Cause.REFUSED_FLAG, 'cxx-flags of [kernel.fill_cpu]: "-fplugin=x"'),
    "torch too new": ({}, {'stable-abi = "2.10"': 'maxver = "2.12"'}, 'cpu',
        Cause.BAD_BUILD_TOML, 'newer than maxver 2.12'),
    "syntax error": ({INIT: 'def f(:\n'}, {}, 'cpu', Cause.BAD_LAYOUT, f'{INIT}:1: SyntaxError'),
    "unprefixed op": ({INIT: '@torch.library.custom_op("a::b", mutates_args=())\ndef f(): ...\n'}, {}, 'cpu',
        Cause.BAD_LAYOUT, 'add_op_namespace_prefix'),
    "no source": ({}, {CPU_SRC: 'src = ["kernels/fill.h"]', '"torch-ext/torch_binding.cpp", ': ''}, 'cpu',
        Cause.BAD_LAYOUT, 'no file to compile'),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_before_any_compiler(name, toolchain):
    """Each with its cause and with a message that says what to do."""
    changes, toml, target, cause, part = REFUSALS[name]
    finding = refused(project(changes, toml=toml), target, toolchain)
    assert finding.cause is cause and part in finding.message


@pytest.mark.parametrize(
    ("path", "left_out", "part"),
    [
        ("kernels/fill.h", "kernels/fill.h", '"kernels/fill.h" is a symbolic link'),
        ("kernels/fill.h", "kernels", '"kernels" is a symbolic link'),
        (INIT, INIT, f"{INIT} is a symbolic link"),
    ],
)
def test_a_listed_file_that_was_left_out_is_explained(path, left_out, part, toolchain):
    """A link, or a file under one, is there for the eye only."""
    given = project({path: None}).model_copy(update={"left_out": {left_out: "is a symbolic link"}})
    finding = refused(given, "cpu", toolchain)
    assert finding.cause is Cause.BAD_LAYOUT and part in finding.message


def test_data_that_is_no_text_is_missing_with_a_warning(toolchain):
    """The package is built without it, and says so."""
    left_out = {"torch-ext/fill_it/table.bin": "is not text (UTF-8)", "docs/logo.png": "is not text (UTF-8)"}
    given = project(toml={'stable-abi = "2.10"': 'pyext = ["py", "bin"]'})
    given = given.model_copy(update={"left_out": left_out})
    warnings = planned(given, "cpu", toolchain).warnings
    assert warnings == ('"torch-ext/fill_it/table.bin" is not text (UTF-8): it is not in the package',)


def test_paths_are_normalized(toolchain):
    """As Nix and CMake do with a path that stays inside the project; headers may have odd names."""
    given = project(
        {"kernels/a b.h": ""},
        toml={
            CPU_SRC: 'src = ["torch-ext/../kernels/fill.cpp", "./kernels/fill.h", "kernels//a b.h"]\n'
            'include = ["a/.."]\ncxx-flags = ["-DA"]'
        },
    )
    layout = planned(given, "cpu", toolchain)
    unit = layout.units.units[1]
    assert (unit.source, unit.include, unit.flags) == ("kernels/fill.cpp", (".",), ("-DA",))
    assert "source/kernels/a b.h" in layout.tree, "no word of a command"


def test_metadata_is_what_upstream_reads(toolchain):
    """Field by field; what the target's own table lists comes after the rest."""
    toml = {
        'license = "Apache-2.0"\n': 'license = "Apache-2.0"\nupstream = "https://x/y"\n'
        'source = "git@h:x/y"\npython-depends = ["einops"]\n'
        'kernel-depends = [{repo-id = "a/b", version = 2}]\n',
        "[torch]": '[general.cuda]\npython-depends = ["nvidia-cutlass-dsl"]\n'
        'kernel-depends = [{repo-id = "a/ç", revision = "main"}]\n[torch]',
        SRC: SRC + '\ncuda-capabilities = ["9.0a", "8.0"]',
    }
    given = project(toml=toml)
    texts = {}
    for target in ("cpu", "cuda"):
        layout = planned(given, target, toolchain)
        texts[target] = layout.package["metadata.json"]
    fields = {target: json.loads(text) for target, text in texts.items()}
    assert fields["cuda"]["python-depends"] == ["einops", "nvidia-cutlass-dsl"]
    general = {"repo-id": "a/b", "version": 2}
    assert fields["cuda"]["kernel-depends"] == [general, {"repo-id": "a/ç", "revision": "main"}]
    assert fields["cuda"]["backend"] == {"type": "cuda", "archs": ["9.0a"]}
    assert (fields["cpu"]["python-depends"], fields["cpu"]["kernel-depends"]) == (["einops"], [general])
    assert fields["cpu"]["backend"] == {"type": "cpu"}
    read = Metadata.from_bytes(texts["cuda"].encode())
    assert (read.id, str(read.name), read.version) == (fields["cuda"]["id"], "fill-it", 1)
    assert read.backend.archs == ["9.0a"]


def test_a_second_kernel_for_another_gpu_is_kept(toolchain):
    """Its symbols may be needed by the binding, so it is compiled for what it names."""
    more = '\n[kernel.blackwell]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["kernels/b.cu"]\n'
    given = project({"kernels/b.cu": "", "build.toml": BUILD_TOML + more + 'cuda-capabilities = ["10.0a"]\n'})
    layout = planned(given, "cuda", toolchain)
    assert {u.source: u.capabilities for u in layout.units.units if u.language == "cuda"} == {
        "kernels/b.cu": ("10.0a",),
        "kernels/fill.cu": ("9.0",),
    }
    assert any("not for sm_90" in w for w in layout.warnings)


def test_warnings_say_what_is_ignored(toolchain):
    """Own registration.h, kernels of unlisted backends, and flags that upstream drops."""
    more = '\n[kernel.m]\nbackend = "metal"\ndepends = []\nsrc = []\n'
    given = project(
        {
            "torch-ext/registration.h": "x",
            "build.toml": BUILD_TOML.replace(CPU_SRC, CPU_SRC + '\ncxx-flags = ["-march=native"]') + more,
        }
    )
    text = "\n".join(planned(given, "cpu", toolchain).warnings)
    for part in ("registration.h is generated", '"metal"', "-march=native"):
        assert part in text
