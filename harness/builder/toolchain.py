"""The compilers, headers and libraries that a build uses: found once, described for the record.

Owns: finding g++, ninja, nvcc, torch and Python's headers, and saying what is missing.
Does not own: flags (flags.py) and running anything untrusted. torch is never imported: it takes
seconds and gigabytes. Invariant: `digest` depends on versions only, not on where things lie.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.records import Record, Target, digest_of

_PROBE_TIMEOUT_S: Final = 60.0
_GXX_MINIMUM: Final = 10  # the first with C++20, which torch's headers need since 2.12
CUDA_EXTRA: Final = "pip install 'liftbench[cuda]'"
# torch's headers ask for these even in code that calls no such library; a CPU-only torch and a
# bare toolkit lack them (harness/builder/templates/stubs has stand-ins).
TORCH_CUDA_HEADER: Final = "c10/cuda/impl/cuda_cmake_macros.h"
MATH_HEADERS: Final = (
    "cublasLt.h",
    "cublas_v2.h",
    "cusolverDn.h",
    "cusolver_common.h",
    "cusparse.h",
)


class CudaToolkit(Record):
    """nvcc and what belongs to it."""

    nvcc: Path
    version: str
    """Such as 13.0.88."""
    root: Path
    include: Path | None
    library: Path | None
    """Directory with libcudart."""
    math_include: Path | None
    """Headers of cuBLAS and the like from PyPI wheels, where the toolkit has none."""

    @property
    def release(self) -> tuple[int, int]:
        """(13, 0)"""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def cudart(self) -> Path | None:
        """The shared CUDA runtime; wheels have it with its major version only."""
        found = [] if self.library is None else self.library.glob("libcudart.so*")
        return min(found, key=lambda p: len(p.name), default=None)


class Toolchain(Record):
    """Paths and versions; None where something was not found."""

    platform: str
    """As in a variant name, such as x86_64-linux."""
    libc: str
    gxx: Path | None
    gxx_version: str | None
    ninja: Path | None
    ninja_version: str | None
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
    stubs: tuple[str, ...] = ()
    """Headers for which a stand-in is generated in CUDA builds."""

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
            versions["stubs"] = " ".join(self.stubs)
        return {name: value for name, value in versions.items() if value}

    @property
    def digest(self) -> str:
        """Over all facts."""
        return digest_of(self.facts())

    def readable(self, target: Target) -> list[Path]:
        """Directories that a build sandbox must be able to read."""
        paths = [self.torch_root, self.python_include, self.ninja]
        if target == "cuda" and self.cuda is not None:
            paths += [self.cuda.root, self.cuda.math_include]
        if self.gxx is not None and not self.gxx.is_relative_to("/usr"):
            paths.append(self.gxx.resolve().parent.parent)
        found = {p.resolve() if p.is_dir() else p.parent for p in paths if p is not None}
        return sorted(found)

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
        # As torch.utils.cpp_extension: another major version cannot be loaded beside torch's own.
        if self.torch_cuda is not None and _major(self.torch_cuda) != _major(version):
            return f"torch {self.torch_version} needs nvcc {self.torch_cuda}, found {version}"
        return None


def _major(version: str) -> str:
    return version.partition(".")[0]


def find_toolchain(environment: Mapping[str, str] | None = None) -> Toolchain:
    """Look around on this machine; `environment` (default: ours) gives CUDA_HOME and PATH."""
    env = os.environ if environment is None else environment
    gxx = _which("g++", env)  # not CXX: the flags are g++'s, and another compiler would fail students
    ninja = next(_ninja_candidates(env), None)
    include = Path(sysconfig.get_config_var("INCLUDEPY") or sysconfig.get_path("include"))
    torch_root, torch_version, torch_cuda = _find_torch()
    cuda = _find_cuda(env)
    return Toolchain(
        platform=f"{platform.machine()}-{platform.system().lower()}",
        libc=" ".join(platform.libc_ver()),
        gxx=gxx,
        gxx_version=_first_line(gxx),
        ninja=ninja,
        ninja_version=_first_line(ninja),
        python_include=include if (include / "Python.h").is_file() else None,
        python_version=platform.python_version(),
        torch_root=torch_root,
        torch_version=torch_version,
        torch_cuda=torch_cuda,
        torch_definitions=_torch_definitions(torch_root),
        cuda=cuda,
        stubs=_stubs(torch_root, cuda),
    )


def _run(command: list[str | Path]) -> str | None:
    """Both streams of a probe; None when it cannot run or fails."""
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _first_line(tool: Path | None) -> str | None:
    output = None if tool is None else _run([tool, "--version"])
    return output.splitlines()[0].strip() if output else None


def _which(name: str, env: Mapping[str, str]) -> Path | None:
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    return None if found is None else Path(found).absolute()


def _ninja_candidates(env: Mapping[str, str]) -> Iterator[Path]:
    """The PyPI wheel's binary, then PATH; a script that needs some Python is no use in a sandbox."""
    spec = importlib.util.find_spec("ninja")
    wheel = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "data/bin/ninja"]
    on_path = _which("ninja", env)
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


# --- CUDA ------------------------------------------------------------------------------------


def _wheel_roots() -> list[Path]:
    """`nvidia/cu13` and the like in site-packages: where the CUDA 13 wheels unpack."""
    spec = importlib.util.find_spec("nvidia")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return sorted((p for place in places for p in Path(place).glob("cu[0-9]*")), reverse=True)


def _nvcc_candidates(env: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(variable):
            yield Path(env[variable]) / "bin/nvcc"
    yield Path("/usr/local/cuda/bin/nvcc")
    yield from (root / "bin/nvcc" for root in _wheel_roots())
    on_path = _which("nvcc", env)
    if on_path is not None:
        yield on_path


def _find_cuda(env: Mapping[str, str]) -> CudaToolkit | None:
    found = (describe_nvcc(path) for path in _nvcc_candidates(env) if path.is_file())
    return next((cuda for cuda in found if cuda is not None), None)


def describe_nvcc(nvcc: Path) -> CudaToolkit | None:
    """Where a working nvcc really lies: it may be a wrapper script, so ask it."""
    version = re.search(r"\bV(\d+\.\d+\.\d+)", _run([nvcc, "--version"]) or "")
    plan = _run([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"]) or ""
    here = re.search(r"^#\$ _HERE_=(.+)$", plan, re.M)
    if version is None or here is None:
        return None
    binary = (Path(here[1].strip()) / "nvcc").resolve()
    root = binary.parent.parent
    include = _holding("cuda_runtime.h", root / "include", *root.glob("targets/*/include"))
    library = _holding("libcudart.so*", root / "lib64", root / "lib", *root.glob("targets/*/lib"))
    math = None
    if include is not None and not (include / "cublas_v2.h").is_file():
        math = _holding("cublas_v2.h", *(wheel / "include" for wheel in _wheel_roots()))
    return CudaToolkit(
        nvcc=binary,
        version=version[1],
        root=root,
        include=include,
        library=library,
        math_include=math,
    )


def _holding(pattern: str, *directories: Path) -> Path | None:
    return next((d for d in directories if any(d.glob(pattern))), None)


def _stubs(torch_root: Path | None, cuda: CudaToolkit | None) -> tuple[str, ...]:
    """Headers that neither torch nor the toolkit nor a wheel has."""
    if torch_root is None or cuda is None:
        return ()
    places = [p for p in (cuda.include, cuda.math_include) if p is not None]
    stubs = [h for h in MATH_HEADERS if not any((p / h).is_file() for p in places)]
    if not (torch_root / "include" / TORCH_CUDA_HEADER).is_file():
        stubs.append(TORCH_CUDA_HEADER)
    return tuple(sorted(stubs))
