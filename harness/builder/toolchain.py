"""The compilers, headers and libraries that a build uses: found once, described for the record.

`digest` depends on what the tools and the fetched headers are, not on where things lie.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.builder.cuda_toolkit import CudaToolkit, find_cuda, find_disassembler, probe, which
from harness.builder.headers.cutlass import Cutlass, find_cutlass
from harness.builder.headers.fetched import HeaderSet, cuda_set, headers_root, load_headers, torch_set
from harness.records import Record, Target, digest_of

_GXX_MINIMUM: Final = 10  # the first with C++20, which torch's headers need since 2.12
_HERE: Final = Path("/")
# Where the loader looks after the directories of its configuration.
_LIBRARIES: Final = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
CUDA_EXTRA: Final = "pip install 'liftbench[cuda]'"
# torch's headers ask for these even in code that calls no such library; a CPU-only torch and a
# bare toolkit lack them. `liftbench headers cuda` fetches them; until then harness/builder/templates/stubs
# has stand-ins.
TORCH_CUDA_HEADER: Final = "c10/cuda/impl/cuda_cmake_macros.h"
MATH_HEADERS: Final = (
    "cublasLt.h",
    "cublas_v2.h",
    "cusolverDn.h",
    "cusolver_common.h",
    "cusparse.h",
)


class Toolchain(Record):
    """Paths and versions; None where something was not found."""

    platform: str
    """As in a variant name, such as x86_64-linux."""
    libc: str
    gxx: Path | None
    gxx_version: str | None
    ninja: Path | None
    ninja_version: str | None
    python: Path
    """The interpreter that jobs run."""
    python_include: Path | None
    """Holds Python.h; None when it does not."""
    python_version: str
    torch_root: Path | None
    torch_version: str | None
    """As torch spells it, such as 2.13.0+cpu."""
    torch_cuda: str | None
    """CUDA version that torch was built for; None for a CPU-only torch."""
    torch_definitions: tuple[str, ...] = ()
    """Macros that torch's own build files hand to everything that links with it."""
    cuda: CudaToolkit | None = None
    headers: tuple[HeaderSet, ...] = ()
    """Fetched headers for CUDA builds, of this nvcc's release and this torch's version."""
    cutlass: tuple[Cutlass, ...] = ()
    """For projects that depend on it; first choice first."""
    stubs: tuple[str, ...] = ()
    """Headers for which a stand-in is generated in CUDA builds."""
    disassembler: Path | None = None
    """Folder with cuobjdump and nvdisasm."""
    libraries: tuple[Path, ...] = ()
    """Where the loader finds the system's shared libraries."""
    root: Path = _HERE
    """Where these paths can be read: / for this machine's own, the view of an image otherwise."""

    @property
    def in_image(self) -> bool:
        """Whether it belongs to an image rather than to this machine."""
        return self.root != _HERE

    def local(self, path: Path) -> Path:
        """Where `path`, as jobs see it, can be read from outside of a sandbox."""
        return self.root / path.relative_to("/") if self.in_image else path

    @property
    def torch_release(self) -> tuple[int, ...]:
        """(2, 13, 0); torch must be there."""
        return tuple(int(n) for n in re.findall(r"\d+", (self.torch_version or "0").split("+")[0])[:3])

    @property
    def torch_is_cpu_only(self) -> bool:
        """Whether the torch in use was built without CUDA."""
        return self.torch_cuda is None

    def facts(self, target: Target = "cuda") -> dict[str, str]:
        """What decides the bytes of a build for `target`, without paths: for records and keys."""
        versions = {
            "platform": self.platform,
            "libc": self.libc,
            "g++": self.gxx_version,
            "ninja": self.ninja_version,
            "python": self.python_version,
            "torch": self.torch_version,
        }
        if target == "cuda":
            versions["torch_cuda"] = self.torch_cuda
            versions["nvcc"] = self.cuda.version if self.cuda else None
            versions["headers"] = " ".join(f"{h.name}:{h.digest[:12]}" for h in self.headers)
            versions["cutlass"] = " ".join(found.fact for found in self.cutlass)
            versions["stubs"] = " ".join(self.stubs)
        return {name: value for name, value in versions.items() if value}

    @property
    def digest(self) -> str:
        """Over all facts."""
        return digest_of(self.facts())

    def readable(self, target: Target) -> list[Path]:
        """Directories of this machine that a build sandbox must be able to read.

        None where the toolchain is an image's: a directory of ours with such a name is another one.
        """
        if self.in_image:
            return []
        paths = [self.torch_root, self.python_include, self.ninja]
        if target == "cuda" and self.cuda is not None:
            paths += [self.cuda.root, self.cuda.math_include]
            paths += [directory for headers in self.headers for directory in headers.include]
            paths += [directory for cutlass in self.cutlass for directory in cutlass.include]
        if self.gxx is not None and not self.gxx.is_relative_to("/usr"):
            paths.append(self.gxx.resolve().parent.parent)
        found = {p.resolve() if p.is_dir() else p.parent for p in paths if p is not None}
        return sorted(found)

    def readable_tools(self) -> list[Path]:
        """As `readable`, for jobs that read compiled kernels."""
        return [self.disassembler] if self.disassembler is not None and not self.in_image else []

    def missing(self, target: Target) -> str | None:
        """What keeps this machine from building for `target`, and what to install; None if nothing."""
        if self.gxx is None:
            return "no g++ found: apt-get install g++"
        if self._gxx_major() < _GXX_MINIMUM:
            return f"{self.gxx_version} is too old for C++20: apt-get install g++-12"
        if self.ninja is None:
            return "no ninja found: pip install ninja"
        if self.torch_root is None:
            return "no torch found: pip install torch"
        if self.python_include is None:
            return (
                f"Python.h is missing for Python {self.python_version}: apt-get install python3-dev "
                "(or the -dev package of this very version)"
            )
        return None if target == "cpu" else self._missing_cuda()

    def _gxx_major(self) -> int:
        """As in `g++ (GCC) 11.4.1 20231218`; a line that says nothing is given the benefit."""
        found = re.search(r"(?:\)|g\+\+)\s+(\d+)\.\d+", self.gxx_version or "")
        return int(found[1]) if found else _GXX_MINIMUM

    def _missing_cuda(self) -> str | None:
        if self.cuda is None:
            return f"no nvcc found (looked at CUDA_HOME, the usual place, wheels, PATH): {CUDA_EXTRA}"
        version = self.cuda.version
        if self.cuda.include is None or self.cuda.cudart is None:
            return f"nvcc {version} has no CUDA headers or no libcudart: {CUDA_EXTRA}"
        newest = self.cuda.newest_gxx
        if newest is not None and self._gxx_major() > newest:
            return (
                f"nvcc {version} works with g++ up to {newest}, found {self.gxx_version}: "
                f"apt-get install g++-{newest}, and put it first on PATH as g++"
            )
        # As torch.utils.cpp_extension: another major version cannot be loaded beside torch's own.
        if self.torch_cuda is not None and _major(self.torch_cuda) != _major(version):
            return f"torch {self.torch_version} needs nvcc {self.torch_cuda}, found {version}"
        return None


def _major(version: str) -> str:
    return version.partition(".")[0]


def find_toolchain(environment: Mapping[str, str] | None = None) -> Toolchain:
    """Look around on this machine; `environment` (default: ours) gives CUDA_HOME and PATH."""
    env = os.environ if environment is None else environment
    gxx = which("g++", env)  # not CXX: the flags are g++'s, and another compiler would fail students
    ninja = next(_ninja_candidates(env), None)
    include = Path(sysconfig.get_config_var("INCLUDEPY") or sysconfig.get_path("include"))
    torch_root, torch_version, torch_cuda = _find_torch()
    cuda = find_cuda(env)
    headers = _headers(env, cuda, torch_version if torch_cuda is None else None)
    return Toolchain(
        platform=f"{platform.machine()}-{platform.system().lower()}",
        libc=" ".join(platform.libc_ver()),
        gxx=gxx,
        gxx_version=_first_line(gxx),
        ninja=ninja,
        ninja_version=_first_line(ninja),
        python=Path(sys.executable),
        python_include=include if (include / "Python.h").is_file() else None,
        python_version=platform.python_version(),
        torch_root=torch_root,
        torch_version=torch_version,
        torch_cuda=torch_cuda,
        torch_definitions=_torch_definitions(torch_root),
        cuda=cuda,
        headers=headers,
        cutlass=find_cutlass(env, headers_root(env)),
        stubs=_stubs(torch_root, cuda, headers) if torch_cuda is None else (),
        disassembler=find_disassembler(None if cuda is None else cuda.root, env),
        libraries=tuple(_system_libraries()),
    )


def _system_libraries() -> Iterator[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if multiarch:
        yield from (Path("/lib") / multiarch, Path("/usr/lib") / multiarch)
    yield Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    yield from map(Path, _LIBRARIES)


def _first_line(tool: Path | None) -> str | None:
    output = None if tool is None else probe([tool, "--version"])
    return output.splitlines()[0].strip() if output else None


def _ninja_candidates(env: Mapping[str, str]) -> Iterator[Path]:
    """The PyPI wheel's binary, then PATH; a script that needs some Python is no use in a sandbox."""
    spec = importlib.util.find_spec("ninja")
    wheel = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "data/bin/ninja"]
    on_path = which("ninja", env)
    for path in [*wheel, Path(sysconfig.get_path("scripts")) / "ninja", *([on_path] if on_path else [])]:
        if _is_program(path):
            yield path


def _is_program(path: Path) -> bool:
    """An executable ELF file."""
    if not (path.is_file() and os.access(path, os.X_OK)):
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


# --- torch -----------------------------------------------------------------------------------


def _find_torch() -> tuple[Path | None, str | None, str | None]:
    """Root, version and CUDA version, read from torch/version.py."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None, None
    root = Path(spec.origin).parent
    try:
        text = (root / "version.py").read_text()
    except OSError:
        return None, None, None
    version = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", text, re.M)
    cuda = re.search(r"^cuda\b[^=\n]*= ['\"]([^'\"]+)['\"]", text, re.M)
    if version is None or not (root / "include").is_dir():
        return None, None, None
    return root, version[1], cuda[1] if cuda else None


def _torch_definitions(root: Path | None) -> tuple[str, ...]:
    """INTERFACE_COMPILE_DEFINITIONS of torch_cpu in torch's CMake files, such as USE_DISTRIBUTED."""
    targets = Path() if root is None else root / "share/cmake/Caffe2/Caffe2Targets.cmake"
    if not targets.is_file():
        return ()
    pattern = r"set_target_properties\(torch_cpu PROPERTIES\s+INTERFACE_COMPILE_DEFINITIONS \"([\w;]*)\""
    found = re.search(pattern, targets.read_text())
    return tuple(sorted(found[1].split(";"))) if found and found[1] else ()


# --- headers ---------------------------------------------------------------------------------


def _headers(
    env: Mapping[str, str], cuda: CudaToolkit | None, cpu_only_torch: str | None
) -> tuple[HeaderSet, ...]:
    """What was fetched for this nvcc and for this version of a CPU-only torch."""
    if cuda is None:
        return ()
    names = [cuda_set(cuda.release)] + ([torch_set(cpu_only_torch)] if cpu_only_torch else [])
    found = (load_headers(headers_root(env), name) for name in names)
    return tuple(headers for headers in found if headers is not None)


def _stubs(
    torch_root: Path | None, cuda: CudaToolkit | None, headers: Sequence[HeaderSet]
) -> tuple[str, ...]:
    """Headers that neither a CPU-only torch nor the toolkit nor a wheel has, and that were not fetched."""
    if torch_root is None or cuda is None:
        return ()
    fetched = [directory for found in headers for directory in found.include]
    toolkit = [p for p in (cuda.include, cuda.math_include, *fetched) if p is not None]
    stubs = [h for h in MATH_HEADERS if not any((p / h).is_file() for p in toolkit)]
    if not any((p / TORCH_CUDA_HEADER).is_file() for p in (torch_root / "include", *fetched)):
        stubs.append(TORCH_CUDA_HEADER)
    return tuple(sorted(stubs))
