"""Finds the compilers, headers and libraries for builds, and describes those of an image."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from harness.builder.headers import HeaderSet, cuda_set, find_cutlass, headers_root, load_headers, torch_set
from harness.errors import SandboxError
from harness.records import Record, Target

_GXX_MINIMUM: Final = 10  # the first with C++20, which torch's headers need since 2.12
_ROOT: Final = Path("/")
# The loader's default directories.
_LIBRARIES: Final = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
CUDA_EXTRA: Final = "pip install 'liftbench[cuda]'"
# Headers that torch's headers include even for code that calls no such library. A CPU-only torch and a bare
# toolkit lack them: `liftbench headers cuda` fetches them, and templates/stubs has stand-ins.
TORCH_CUDA_HEADER: Final = "c10/cuda/impl/cuda_cmake_macros.h"
MATH_HEADERS: Final = ("cublasLt.h", "cublas_v2.h", "cusolverDn.h", "cusolver_common.h", "cusparse.h")


class CudaToolkit(Record):
    """nvcc with its headers and its runtime library."""

    nvcc: Path
    version: str
    root: Path
    include: Path | None
    library: Path | None
    cudart: Path | None
    """The shared CUDA runtime; in wheels its name ends in its major version."""
    newest_gxx: int | None = None
    """Newest major version of g++ that nvcc works with, if its headers say so."""
    math_include: Path | None
    """Headers of cuBLAS and the like from PyPI wheels, if the toolkit has none."""

    @property
    def release(self) -> tuple[int, int]:
        """(13, 0)"""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


class Toolchain(Record):
    """Paths and versions; None for what was not found."""

    platform: str
    libc: str
    gxx: Path | None
    gxx_version: str | None
    ninja: Path | None
    ninja_version: str | None
    python: Path
    python_include: Path | None
    python_version: str
    torch_root: Path | None
    torch_version: str | None
    torch_cuda: str | None
    """CUDA version that torch was built for; None for a CPU-only torch."""
    torch_definitions: tuple[str, ...] = ()
    """Macros that torch's CMake files define for everything that links with it."""
    cuda: CudaToolkit | None = None
    headers: tuple[HeaderSet, ...] = ()
    cutlass: tuple[HeaderSet, ...] = ()
    stubs: tuple[str, ...] = ()
    """Headers for which CUDA builds get a stand-in."""
    disassembler: Path | None = None
    libraries: tuple[Path, ...] = ()
    root: Path = _ROOT
    """Folder that contains these paths: / for this machine, the copy of an image's files otherwise."""

    @property
    def in_image(self) -> bool:
        """Whether it belongs to an image and not to this machine."""
        return self.root != _ROOT

    def local(self, path: Path) -> Path:
        """The path outside of the sandbox of `path`, which is a path inside."""
        return self.root / path.relative_to("/") if self.in_image else path

    @property
    def torch_release(self) -> tuple[int, ...]:
        """(2, 13, 0); (0,) without torch."""
        return tuple(int(n) for n in re.findall(r"\d+", (self.torch_version or "0").split("+")[0])[:3])

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
            versions["cutlass"] = " ".join(f"{h.name}:{h.digest[:12]}" for h in self.cutlass)
            versions["stubs"] = " ".join(self.stubs)
            versions["nvdisasm"] = "present" if self.disassembler else None
        return {name: value for name, value in versions.items() if value}

    def readable(self, target: Target) -> list[Path]:
        """Directories of this machine that a build sandbox must read; empty for an image's toolchain."""
        if self.in_image:
            return []
        paths = [self.torch_root, self.python_include, self.ninja]
        if target == "cuda" and self.cuda is not None:
            paths += [self.cuda.root, self.cuda.math_include]
            paths += [place for found in self.fetched for place in found.include]
        if self.gxx is not None and not self.gxx.is_relative_to("/usr"):
            paths.append(self.gxx.resolve().parent.parent)
        return sorted({p.resolve() if p.is_dir() else p.parent for p in paths if p is not None})

    @property
    def fetched(self) -> tuple[HeaderSet, ...]:
        """All sets of headers."""
        return (*self.headers, *self.cutlass)

    def readable_tools(self) -> list[Path]:
        """The same for jobs that read compiled kernels."""
        return [self.disassembler] if self.disassembler is not None and not self.in_image else []

    def missing(self, target: Target) -> str | None:
        """What this machine lacks to build for `target`, and how to install it; None if nothing."""
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
        """From a line such as `g++ (GCC) 11.4.1 20231218`; the minimum if it cannot be read."""
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
        if self.torch_cuda is not None and self.torch_cuda.split(".")[0] != version.split(".")[0]:
            return f"torch {self.torch_version} needs nvcc {self.torch_cuda}, found {version}"
        return None


def find_toolchain(environment: Mapping[str, str] | None = None) -> Toolchain:
    """The toolchain of this machine; `environment` (default: ours) provides CUDA_HOME and PATH."""
    env = os.environ if environment is None else environment
    gxx = _which("g++", env)  # not CXX: the flags are g++'s, and another compiler would fail students
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
        disassembler=find_disassembler(None if cuda is None else cuda.root),
        libraries=tuple(_system_libraries()),
    )


def _system_libraries() -> Iterator[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if multiarch:
        yield from (Path("/lib") / multiarch, Path("/usr/lib") / multiarch)
    yield Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    yield from map(Path, _LIBRARIES)


def _first_line(tool: Path | None) -> str | None:
    output = None if tool is None else _probe([tool, "--version"])
    return output.splitlines()[0].strip() if output else None


def _ninja_candidates(env: Mapping[str, str]) -> Iterator[Path]:
    """The binary of the PyPI wheel, then PATH. A script would need its Python inside the sandbox."""
    spec = importlib.util.find_spec("ninja")
    wheel = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "data/bin/ninja"]
    on_path = _which("ninja", env)
    for path in [*wheel, Path(sysconfig.get_path("scripts")) / "ninja", *([on_path] if on_path else [])]:
        if path.is_file() and os.access(path, os.X_OK):
            with path.open("rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    yield path


def _probe(command: list[str | Path]) -> str | None:
    """Both output streams of a command; None if it cannot run or fails."""
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60.0,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _which(name: str, env: Mapping[str, str]) -> Path | None:
    """An executable on the PATH of `env`: absolute, with its links unresolved."""
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    return None if found is None else Path(found).absolute()


def _find_torch() -> tuple[Path | None, str | None, str | None]:
    """Root, version and CUDA version, read from torch/version.py without importing torch."""
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


def _headers(
    env: Mapping[str, str], cuda: CudaToolkit | None, cpu_only_torch: str | None
) -> tuple[HeaderSet, ...]:
    """The sets that were fetched for this nvcc and for this version of a CPU-only torch."""
    if cuda is None:
        return ()
    names = [cuda_set(cuda.release)] + ([torch_set(cpu_only_torch)] if cpu_only_torch else [])
    found = (load_headers(headers_root(env), name) for name in names)
    return tuple(headers for headers in found if headers is not None)


def _stubs(
    torch_root: Path | None, cuda: CudaToolkit | None, headers: Sequence[HeaderSet]
) -> tuple[str, ...]:
    """Headers that are neither in torch, nor in the toolkit or a wheel, nor fetched."""
    if torch_root is None or cuda is None:
        return ()
    fetched = [directory for found in headers for directory in found.include]
    toolkit = [p for p in (cuda.include, cuda.math_include, *fetched) if p is not None]
    stubs = [h for h in MATH_HEADERS if not any((p / h).is_file() for p in toolkit)]
    if not any((p / TORCH_CUDA_HEADER).is_file() for p in (torch_root / "include", *fetched)):
        stubs.append(TORCH_CUDA_HEADER)
    return tuple(sorted(stubs))


def find_cuda(env: Mapping[str, str]) -> CudaToolkit | None:
    """The first nvcc that works: CUDA_HOME, CUDA_PATH, /usr/local/cuda, wheels, PATH."""
    found = (describe_nvcc(path) for path in _nvcc_candidates(env) if path.is_file())
    return next((cuda for cuda in found if cuda is not None), None)


def _wheel_roots() -> list[Path]:
    """`nvidia/cu13` and the like in site-packages, where the CUDA 13 wheels unpack."""
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


def describe_nvcc(nvcc: Path) -> CudaToolkit | None:
    """The toolkit of an nvcc, which may be a wrapper script: nvcc itself says where it is."""
    version = re.search(r"\bV(\d+\.\d+\.\d+)", _probe([nvcc, "--version"]) or "")
    plan = _probe([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"]) or ""
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
    runtimes = [] if library is None else library.glob("libcudart.so*")
    return CudaToolkit(
        nvcc=binary,
        version=version[1],
        root=root,
        include=include,
        library=library,
        cudart=min(runtimes, key=lambda p: len(p.name), default=None),
        newest_gxx=_newest_gxx(include),
        math_include=math,
    )


def _newest_gxx(include: Path | None) -> int | None:
    header = None if include is None else include / "crt/host_config.h"
    if header is None or not header.is_file():
        return None
    found = re.search(r"gcc versions later than (\d+) are not supported", header.read_text(errors="replace"))
    return int(found[1]) if found else None


def _holding(pattern: str, *directories: Path) -> Path | None:
    return next((d for d in directories if any(d.glob(pattern))), None)


def find_disassembler(root: Path | None) -> Path | None:
    """The folder with cuobjdump and nvdisasm: of the toolkit at `root`, or of a PyPI wheel."""
    folders = [] if root is None else [root / "bin"]
    folders += [wheel / "bin" for wheel in _wheel_roots()]
    tools = ("cuobjdump", "nvdisasm")
    return next((f.absolute() for f in folders if all(os.access(f / tool, os.X_OK) for tool in tools)), None)


class Description(Record):
    """/opt/liftbench/toolchain.json of an image."""

    schema_version: Literal[1] = 1
    toolchain: Toolchain
    view: dict[str, Any]
    """Files that are read outside of the image: `trees` to copy, and `links` (path -> target) on the way."""


def describe_toolchain() -> str:
    """The description of the image that this runs in, as JSON."""
    found = find_toolchain()
    links: dict[str, str] = {}
    trees: dict[Path, dict[str, object]] = {}
    for path, names in _wanted(found):
        _add_links(path, links)
        real = path.resolve()
        # Most library folders contain nothing of interest, and large subfolders.
        if real.is_file() or any(real.glob(names)):
            trees.setdefault(real, {"path": str(real), "names": names, "deep": names == "*"})
    view = {"trees": list(trees.values()), "links": links}
    return Description(toolchain=found, view=view).model_dump_json(indent=1) + "\n"


def toolchain_of_image(description: bytes, view: Path) -> Toolchain:
    """The toolchain that an image describes; `view` contains the copied files.

    Raises SandboxError for an unusable description: every path must be absolute and without `..`.
    """
    try:
        toolchain = Description.model_validate_json(description).toolchain
        for path in _paths(toolchain):
            if not path.is_absolute() or ".." in path.parts:
                raise ValueError(f"it names {str(path)[:200]!r}")
    except ValueError as error:
        why = f"it has {error.error_count()} errors" if isinstance(error, ValidationError) else str(error)
        message = f"the build image's description of its toolchain cannot be used: {why}; make image"
        raise SandboxError(message) from None
    return toolchain.model_copy(update={"root": view.absolute()})


def _paths(value: object) -> Iterator[Path]:
    """Every path in a record."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Record):
        yield from _paths(tuple(dict(value).values()))
    elif isinstance(value, tuple):
        for part in value:
            yield from _paths(part)


def _wanted(toolchain: Toolchain) -> Iterator[tuple[Path, str]]:
    """(path, names): headers, to look up those that a compiler did not find, and libraries, whose symbols
    are read."""
    torch, cuda = toolchain.torch_root, toolchain.cuda
    whole = [toolchain.python, toolchain.python_include]
    whole += [place for found in toolchain.fetched for place in found.include]
    libraries: list[Path | None] = [*toolchain.libraries]
    if torch is not None:
        whole += [torch / "version.py", torch / "include"]
        libraries += [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
    if cuda is not None:
        whole += [cuda.include, cuda.math_include]
        libraries.append(cuda.library)
    yield from ((path, "*") for path in whole if path is not None)
    yield from ((path, "*.so*") for path in libraries if path is not None)


def _add_links(path: Path, links: dict[str, str]) -> None:
    """Add every link on the way to the file at `path`."""
    here = Path("/")
    for number, part in enumerate(path.parts[1:], start=2):
        here = here / part
        if here.is_symlink() and str(here) not in links:
            target = here.readlink()
            links[str(here)] = str(target)
            _add_links(here.parent.joinpath(target, *path.parts[number:]), links)
            return
