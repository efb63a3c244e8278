"""Which libraries are loaded beside an extension, and whether one of them has a symbol.

Only libraries of the system, of torch and of the CUDA toolkit are opened, by plain names.

An extension finds its symbols in the program and its libraries, in what torch makes global
(libtorch_global_deps), and in the libraries it was linked with and theirs. libtorch_python is none of
these: it comes into a process as a library of torch/_C, which Python loads with RTLD_LOCAL
(sys.getdlopenflags() is RTLD_NOW), and kernel-builder does not link it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.builder.binary.elf import ElfError, SharedLibrary
from harness.builder.binary.symbol_names import qualified
from harness.builder.toolchain import Toolchain
from harness.records import Target

# Extensions ask for some hundred; each costs half a millisecond, so a hostile one costs ten seconds.
MAX_UNDEFINED: Final = 20_000
_MAX_LIBRARIES: Final = 200  # a process with a CUDA torch has about 40

# What libtorch_cuda, libc10_cuda and the libraries that they need export and a CPU-only torch lacks,
# after the exported symbols and the needed libraries of torch 2.13.0+cu130. The driver (cuLaunchKernel)
# and cuSOLVER are not among them.
_ONLY_CUDA_TORCH: Final = re.compile(
    r"""(c10::cuda | at::cuda | at::native | torch::cuda | c10d | torch::inductor
        | pytorch_flash | PyTorchMemEffAttention
        )::\w.*
    | at::CUDA\w+(::.*)?
    | aoti_torch_(cuda_\w+ | (create|delete)_cuda_\w+ | get_current_cuda_stream)
    | torch_(c10_cuda_\w+ | cuda_\w+ | get_cuda_\w+ | get_current_cuda_\w+ | set_current_cuda_\w+)
    | (cublas|cublasLt|cusparse|cusparseLt|cufft|cufile|nccl|pnccl|curand|cudnn|nvrtc|nvshmem)[A-Z_]\w*""",
    re.X,
)


def only_in_cuda_torch(symbol: str) -> bool:
    """Whether a symbol that a CPU-only torch lacks could come from a CUDA build of torch."""
    return _ONLY_CUDA_TORCH.fullmatch(qualified(symbol)) is not None


class LoadedLibraries:
    """Everything in which an extension's symbols are looked up."""

    def __init__(self, extension: SharedLibrary, toolchain: Toolchain) -> None:
        """Raises ElfError when the extension's own tables are wrong."""
        self._toolchain = toolchain
        self._directories = list(_directories(toolchain))
        self._found: dict[str, SharedLibrary] = {}
        self.missing: list[str] = []
        """Names of needed libraries that were not found: then nothing can be said of a symbol."""
        interpreter = toolchain.local(toolchain.python).resolve()
        program = SharedLibrary.open(interpreter)
        self._found[""] = program
        waiting: list[tuple[str, tuple[Path, ...]]] = [("libtorch_global_deps.so", ())]
        waiting += [(name, self._rpath(program, interpreter)) for name in program.needed]
        waiting += [(name, ()) for name in extension.needed]
        for name, near in waiting:  # grows while it is walked: breadth first, as the loader does
            if name not in self._found and len(self._found) < _MAX_LIBRARIES:
                waiting += self._load(name, near)

    def _load(self, name: str, near: tuple[Path, ...]) -> list[tuple[str, tuple[Path, ...]]]:
        """Open one library; what it needs, and where that is looked for first."""
        path = None
        if re.fullmatch(r"[\w.+-]+", name):
            path = next((d / name for d in (*near, *self._directories) if (d / name).is_file()), None)
        try:
            library = None if path is None else SharedLibrary.open(path)
        except (ElfError, OSError):
            library = None
        if library is None or path is None:
            if name not in self.missing:
                self.missing.append(name)
            return []
        self._found[name] = library
        return [(needed, (*self._rpath(library, path), *near)) for needed in library.needed]

    def have(self, symbol: str) -> bool:
        """Whether one of them exports `symbol`."""
        return any(library.exports(symbol) for library in self._found.values())

    def _rpath(self, library: SharedLibrary, path: Path) -> tuple[Path, ...]:
        """The library's own search path, as it can be read here; `path` is where it was."""
        origin = str(path.resolve().parent)
        return tuple(
            self._toolchain.local(Path(entry))
            if entry.startswith("/")
            else Path(entry.replace("$ORIGIN", origin))
            for entry in library.search_path
        )


def _directories(toolchain: Toolchain) -> Iterator[Path]:
    """Where they can be read here."""
    if toolchain.torch_root is not None:
        yield toolchain.local(toolchain.torch_root) / "lib"
    if toolchain.cuda is not None and toolchain.cuda.library is not None:
        yield toolchain.local(toolchain.cuda.library)
    yield from map(toolchain.local, toolchain.libraries)


def unresolved(extension: SharedLibrary, target: Target, toolchain: Toolchain) -> tuple[list[str], int]:
    """Mangled names that no library has, so that the import fails, and how many symbols could only
    come from the CUDA build of torch that this machine lacks. Raises ElfError.

    Weak symbols may stay undefined. Where a library was not found, everything missing is unproven.
    """
    wanted = [s.name for s in extension.symbols() if not s.defined and not s.weak]
    if len(wanted) > MAX_UNDEFINED:
        raise ElfError(f"it asks for more than {MAX_UNDEFINED} symbols")
    loaded = LoadedLibraries(extension, toolchain)
    absent = [name for name in wanted if not loaded.have(name)]
    if loaded.missing:
        return [], len(absent)
    if target == "cpu" or not toolchain.torch_is_cpu_only:
        return absent, 0
    lacking = [name for name in absent if not only_in_cuda_torch(name)]
    return lacking, len(absent) - len(lacking)
