"""The commands of a build, with the flags of kernel-builder's CMake project, and their build.ninja.

Objects contain no path of this machine: paths are relative to the build tree, or mapped to short names.
Three flags are not kernel-builder's: -ccbin (pins the host compiler), -ffile-prefix-map, and nvcc's --keep
with a fixed source path (its internal names otherwise depend on the directory and the process id).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from harness.builder.layout import SOURCE, STUBS, Layout
from harness.builder.toolchain import Toolchain
from harness.builder.translation_units import Unit, gencode

# Diagnostics that torch's own headers provoke (torch/share/cmake/Caffe2/public/cuda.cmake).
_SUPPRESSED: Final = (
    "cc_clobber_ignored",
    "field_without_dll_interface",
    "base_class_has_different_dll_interface",
    "dll_interface_conflict_none_assumed",
    "dll_interface_conflict_dllexport_assumed",
    "bad_friend_decl",
)
_CXX20_SINCE: Final = (2, 12)


def object_path(unit: Unit) -> str:
    """Each object has its own directory, in which nvcc leaves its intermediate files."""
    return f"obj/{unit.source}/unit.o"


def library_path(layout: Layout) -> str:
    """Path of the extension module in the build tree."""
    return f"lib/{layout.ops_name}.abi3.so"


def compile_argv(unit: Unit, layout: Layout, toolchain: Toolchain) -> tuple[str, ...]:
    """The command that turns one source into its object."""
    argv = _nvcc_argv if unit.language == "cuda" else _gxx_argv
    return argv(unit, layout, toolchain)


def link_argv(layout: Layout, toolchain: Toolchain) -> tuple[str, ...]:
    """The command that links all objects. No rpath: the worker has torch loaded already."""
    assert toolchain.gxx is not None and toolchain.torch_root is not None
    lib = toolchain.torch_root / "lib"
    cuda = _cuda_libraries(layout, toolchain)
    torch_cuda = layout.target == "cuda" and toolchain.torch_cuda is not None
    return (
        str(toolchain.gxx),
        *("-fPIC", "-O3", "-DNDEBUG", "-shared", "-o", library_path(layout)),
        *(object_path(unit) for unit in layout.units.units),
        str(lib / "libtorch.so"),
        *cuda[:1],
        f"-Wl,--no-as-needed,{lib}/libtorch_cpu.so" + (f",{lib}/libtorch_cuda.so" if torch_cuda else ""),
        "-Wl,--as-needed",
        *([f"{lib}/libc10_cuda.so"] if torch_cuda else []),
        f"{lib}/libc10.so",
        *cuda[1:],
    )


def _cuda_libraries(layout: Layout, toolchain: Toolchain) -> tuple[str, ...]:
    """The shared runtime, then the libraries that CMake adds to CUDA targets."""
    if layout.target != "cuda":
        return ()
    assert toolchain.cuda is not None and toolchain.cuda.cudart is not None
    static = ("-lcudadevrt", "-lcudart_static", "-lrt", "-lpthread", "-ldl")
    return (str(toolchain.cuda.cudart), f"-L{toolchain.cuda.library}", *static)


def _definitions(layout: Layout, toolchain: Toolchain) -> tuple[str, ...]:
    names = ["Py_LIMITED_API=3", *toolchain.torch_definitions]
    names += [f"TORCH_EXTENSION_NAME={layout.ops_name}", f"{layout.ops_name}_EXPORTS"]
    names += ["CUDA_KERNEL", "USE_CUDA=1"] if layout.target == "cuda" else ["CPU_KERNEL"]
    if layout.stable_abi is not None:
        major, minor = layout.stable_abi
        names.append(f"TORCH_TARGET_VERSION=0x{(major << 56) | (minor << 48):x}")
    return tuple(f"-D{name}" for name in sorted(names))


def _includes(unit: Unit, layout: Layout, toolchain: Toolchain) -> Iterator[str]:
    """CMake's order for source properties: the component's directories, then csrc."""
    for directory in (*unit.include, "csrc"):
        yield f"-I{PurePosixPath(SOURCE) / directory}"
    for directory in system_directories(layout, toolchain):
        yield from ("-isystem", directory)


def system_directories(layout: Layout, toolchain: Toolchain) -> Sequence[str]:
    """Directories for -isystem, in order; relative ones are in the build tree."""
    assert toolchain.torch_root is not None
    torch = toolchain.torch_root / "include"
    found = [toolchain.python_include, torch, torch / "torch/csrc/api/include"]
    if layout.target == "cuda" and toolchain.cuda is not None:
        found += [toolchain.cuda.include, toolchain.cuda.math_include]
        found += [directory for headers in toolchain.headers for directory in headers.include]
        # For every file of the project and last, as in kernel-builder.
        found += layout.units.cutlass.include if layout.units.cutlass is not None else ()
    words = [str(directory) for directory in found if directory is not None]
    return [*words, STUBS] if layout.target == "cuda" and toolchain.stubs else words


def _prefix_maps(layout: Layout, toolchain: Toolchain) -> tuple[str, ...]:
    """Keep this machine's paths out of __FILE__ in torch's macros."""
    places = {"python": toolchain.python_include, "torch": toolchain.torch_root}
    if layout.target == "cuda" and toolchain.cuda is not None:
        places |= {"cuda": toolchain.cuda.root, "cuda-math": toolchain.cuda.math_include}
        places |= {headers.name: headers.root for headers in toolchain.headers}
        if layout.units.cutlass is not None:
            places["cutlass"] = layout.units.cutlass.root
    return tuple(f"-ffile-prefix-map={p}={name}" for name, p in sorted(places.items()) if p)


def _standard(toolchain: Toolchain) -> str:
    return "++20" if toolchain.torch_release >= _CXX20_SINCE else "++17"


def _gxx_argv(unit: Unit, layout: Layout, toolchain: Toolchain) -> tuple[str, ...]:
    return (
        str(toolchain.gxx),
        *_definitions(layout, toolchain),
        *_includes(unit, layout, toolchain),
        *("-O3", "-DNDEBUG", f"-std=gnu{_standard(toolchain)}", "-fPIC", "-fno-gnu-unique"),
        *_prefix_maps(layout, toolchain),
        *unit.flags,
        *("-o", object_path(unit), "-c", f"{SOURCE}/{unit.source}"),
    )


def _nvcc_argv(unit: Unit, layout: Layout, toolchain: Toolchain) -> tuple[str, ...]:
    assert toolchain.cuda is not None
    output = object_path(unit)
    return (
        str(toolchain.cuda.nvcc),
        "-forward-unknown-to-host-compiler",
        *("-ccbin", str(toolchain.gxx)),
        *_definitions(layout, toolchain),
        *_includes(unit, layout, toolchain),
        "-DONNX_NAMESPACE=onnx_c2",
        *("-Xcudafe", ",".join(f"--diag_suppress={name}" for name in _SUPPRESSED)),
        *("--expt-relaxed-constexpr", "--expt-extended-lambda"),
        *("-O3", "-DNDEBUG", f"-std=c{_standard(toolchain)}", "-Xcompiler=-fPIC"),
        # torch's COMMON_NVCC_FLAGS without the four macros that switch half operators off.
        *("--expt-relaxed-constexpr", "-DENABLE_FP8"),
        *_prefix_maps(layout, toolchain),
        *("--keep", "--keep-dir", str(PurePosixPath(output).parent)),
        *("-Xcudafe", "--orig_src_path_name"),
        *("-Xcudafe", f"/liftbench/{unit.source}"),
        *gencode(unit.capabilities),
        *unit.flags,
        *("-x", "cu", "-c", f"{SOURCE}/{unit.source}", "-o", output),
    )


_NINJA_HEADER: Final = """\
# Written by liftbench; see docs/decisions/0002-direct-ninja.md.
ninja_required_version = 1.8

rule compile
  command = $argv "-ffile-prefix-map=$$PWD=."
  description = $what $in

rule link
  command = $argv
  description = link $out
"""


def ninja_file(layout: Layout, toolchain: Toolchain, *, driver: Sequence[str] = ()) -> str:
    """The text of build.ninja, which runs in the build tree; `driver` precedes every nvcc command."""
    edges = [_NINJA_HEADER]
    objects = [object_path(unit) for unit in layout.units.units]
    for unit, output in zip(layout.units.units, objects, strict=True):
        argv = compile_argv(unit, layout, toolchain)
        if unit.language == "cuda":
            argv = (*driver, *argv)
        what = "nvcc" if unit.language == "cuda" else "g++"
        edges.append(
            f"build {_ninja_path(output)}: compile {_ninja_path(f'{SOURCE}/{unit.source}')}\n"
            f"  what = {what}\n  argv = {_shell_command(argv)}\n"
        )
    library = library_path(layout)
    edges.append(
        f"build {_ninja_path(library)}: link {' '.join(map(_ninja_path, objects))}\n"
        f"  argv = {_shell_command(link_argv(layout, toolchain))}\n"
    )
    edges.append(f"default {_ninja_path(library)}\n")
    return "\n".join(edges)


def _ninja_path(path: str) -> str:
    """Escape a path for a build line, which ninja splits at spaces and colons."""
    return path.replace("$", "$$").replace(":", "$:").replace(" ", "$ ")


def _shell_command(argv: Sequence[str]) -> str:
    """Escape a command for a ninja variable that a shell reads."""
    return shlex.join(argv).replace("$", "$$")
