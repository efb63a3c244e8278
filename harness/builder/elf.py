"""Reads shared libraries: symbols, needed libraries, strings, and symbols that the loader would not find.

The bytes are hostile: every offset is checked, every count is limited, and every error is an ElfError.
Section headers are ignored, as the loader ignores them.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from harness.builder.symbol_classes import qualified
from harness.builder.toolchain import Toolchain
from harness.records import Target

Buffer = bytes | mmap.mmap

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_DYNAMIC: Final = struct.Struct("<qQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_WORD: Final = struct.Struct("<I")
_RELOCATION_BYTES: Final = 24
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 1, 5, 6, 10
_DT_HASH, _DT_RPATH, _DT_RUNPATH, _DT_GNU_HASH = 4, 15, 29, 0x6FFFFEF5
_RELOCATION_TABLES: Final = ((7, 8), (23, 2))  # DT_RELA with DT_RELASZ, DT_JMPREL with DT_PLTRELSZ
_WEAK = 2

# libtorch_cpu.so has 75,000 dynamic symbols and 12 MB of their names; an extension has hundreds.
MAX_SYMBOLS: Final = 1 << 19
MAX_NAME_BYTES: Final = 1 << 16
_MAX_NAMES_BYTES: Final = 1 << 27
_MAX_STRINGS: Final = 10_000


class ElfError(ValueError):
    """The bytes are not a shared library that can be read safely; the message says why."""


class Symbol(NamedTuple):
    name: str
    defined: bool
    weak: bool


class SharedLibrary:
    """The dynamic part of one ELF64 file, little-endian."""

    def __init__(self, data: Buffer) -> None:
        """Raises ElfError."""
        self._data = data
        header = self._unpack(_HEADER, 0)
        # Class 64, little-endian, and a machine whose loader reads these very tables (x86-64, AArch64).
        if header[0][:6] != b"\x7fELF\x02\x01" or header[1] not in (2, 3) or header[2] not in (62, 183):
            raise ElfError("it is no 64-bit ELF library or program")
        if header[9] != _SEGMENT.size:
            raise ElfError("its program headers have an unknown size")
        segments = [self._unpack(_SEGMENT, header[5] + i * _SEGMENT.size) for i in range(header[10])]
        self._loads = [(s[3], s[2], s[5]) for s in segments if s[0] == _PT_LOAD]
        size = len(data)
        if any(at + length > size for _, at, length in self._loads):
            raise ElfError("a part of it lies past its end")
        if sum(length for _, _, length in self._loads) > 2 * size:
            raise ElfError("its parts overlap")  # reading them all would take forever
        dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
        if dynamic is None:
            raise ElfError("it has no dynamic segment")
        self._tags = list(self._read_dynamic(dynamic[2], dynamic[5]))
        self._first = first = dict(reversed(self._tags))
        self._strings_at = self._offset(first.get(_DT_STRTAB, 0))
        self._strings_size = min(first.get(_DT_STRSZ, 0), size - self._strings_at)
        self._symbols_at = self._offset(first.get(_DT_SYMTAB, 0))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a file into memory. Raises ElfError and OSError."""
        with path.open("rb") as file:
            try:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError as error:  # the file is empty
                raise ElfError(f"{path.name}: {error}") from error

    def _unpack(self, form: struct.Struct, offset: int) -> tuple[Any, ...]:
        try:
            return form.unpack_from(self._data, offset)
        except (struct.error, OverflowError):
            raise ElfError(f"it ends before offset {offset} + {form.size}") from None

    def _offset(self, address: int) -> int:
        """Offset in the file of a loaded address."""
        for start, offset, size in self._loads:
            if start <= address < start + size:
                return int(offset + address - start)
        raise ElfError(f"address {address:#x} is in no loaded part of the file")

    def _read_dynamic(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        for at in range(offset, offset + min(size, _DYNAMIC.size * 4096), _DYNAMIC.size):
            tag, value = self._unpack(_DYNAMIC, at)
            if tag == 0:
                return
            yield tag, value

    def _string(self, index: int) -> str:
        if index >= self._strings_size:
            raise ElfError("a name lies outside its table")
        start = self._strings_at + index
        end = self._strings_at + self._strings_size
        stop = self._data.find(b"\0", start, min(end, start + MAX_NAME_BYTES))
        if stop < 0:
            raise ElfError("a name does not end within its table")
        return self._data[start:stop].decode(errors="backslashreplace")

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the libraries that are loaded with it, in order. Raises ElfError."""
        return tuple(self._string(value) for tag, value in self._tags if tag == _DT_NEEDED)

    @property
    def search_path(self) -> tuple[str, ...]:
        """Entries of its rpath or runpath. Raises ElfError."""
        paths = [self._string(v) for tag, v in self._tags if tag in (_DT_RPATH, _DT_RUNPATH)]
        return tuple(entry for path in paths for entry in path.split(":") if entry)

    def symbols(self) -> list[Symbol]:
        """All dynamic symbols with a name. Raises ElfError."""
        found, total = [], 0
        for index in range(1, self._symbol_count()):
            name, info, _, section, _, _ = self._unpack(_SYMBOL, self._symbols_at + index * _SYMBOL.size)
            if name:
                text = self._string(name)
                total += len(text)
                if total > _MAX_NAMES_BYTES:
                    raise ElfError("its symbol names are too long together")
                found.append(Symbol(text, section != 0, info >> 4 == _WEAK))
        return found

    def exports(self) -> frozenset[str]:
        """Names that it defines. Raises ElfError."""
        return frozenset(symbol.name for symbol in self.symbols() if symbol.defined)

    def strings(self, pattern: re.Pattern[bytes]) -> set[str]:
        """At most 10,000 distinct matches of `pattern` in the loaded parts of the file."""
        found: set[bytes] = set()
        for _, offset, size in self._loads:
            for match in pattern.finditer(self._data, offset, offset + size):
                found.add(match[0])
                if len(found) >= _MAX_STRINGS:
                    break
        return {text.decode(errors="backslashreplace") for text in found}

    def _word(self, offset: int) -> int:
        return int(self._unpack(_WORD, offset)[0])

    def _symbol_count(self) -> int:
        """The file does not store the table's length: take it from the hash tables and the relocations."""
        counts = [1]
        if _DT_HASH in self._first:
            counts.append(self._word(self._offset(self._first[_DT_HASH]) + 4))
        if _DT_GNU_HASH in self._first:
            counts.append(self._hashed_end(self._offset(self._first[_DT_GNU_HASH])))
        counts += [self._highest_in_relocations(start, size) + 1 for start, size in _RELOCATION_TABLES]
        count = max(counts)
        if count > MAX_SYMBOLS:
            raise ElfError(f"it has more than {MAX_SYMBOLS} symbols")
        return count

    def _hashed_end(self, table: int) -> int:
        """One past the last symbol of the last chain; undefined symbols precede the first."""
        bucket_count, first, bloom_words, _ = self._unpack(struct.Struct("<4I"), table)
        if not 0 < bucket_count <= MAX_SYMBOLS or bloom_words > MAX_SYMBOLS or first > MAX_SYMBOLS:
            raise ElfError("its hash table has an impossible size")
        buckets = table + 16 + 8 * bloom_words
        index = max(self._word(buckets + 4 * i) for i in range(bucket_count))
        if index < first:
            return int(first)
        while not self._word(buckets + 4 * (bucket_count + index - first)) & 1:
            index += 1
            if index > MAX_SYMBOLS:
                raise ElfError(f"it has more than {MAX_SYMBOLS} symbols")
        return index + 1

    def _highest_in_relocations(self, start_tag: int, size_tag: int) -> int:
        address, size = self._first.get(start_tag), self._first.get(size_tag, 0)
        if address is None or size < _RELOCATION_BYTES:
            return 0
        start = self._offset(address)
        if start + size > len(self._data):
            raise ElfError("its relocations go past its end")
        whole = size - size % _RELOCATION_BYTES
        # Three words each; the symbol is the upper half of the second.
        words = memoryview(self._data[start : start + whole]).cast("Q")
        return max(words[1::3]) >> 32


_MAX_LIBRARIES: Final = 200  # a process with a CUDA torch has about 40

# Symbols that only a CUDA build of torch provides: exports of libtorch_cuda, libc10_cuda and the libraries
# that they need in torch 2.13.0+cu130. The driver (cuLaunchKernel) and cuSOLVER are not among them.
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
    """Whether a symbol could come from a CUDA build of torch only."""
    return _ONLY_CUDA_TORCH.fullmatch(qualified(symbol)) is not None


class _Readable(NamedTuple):
    """What the search needs of one library."""

    exports: frozenset[str]
    needed: tuple[str, ...]
    search_path: tuple[str, ...]


@lru_cache(maxsize=_MAX_LIBRARIES)
def _read(path: Path, _changed_ns: int) -> _Readable:
    """Raises ElfError and OSError. Kept, because libtorch_cpu takes half a second."""
    library = SharedLibrary.open(path)
    return _Readable(library.exports(), library.needed, library.search_path)


def loaded_libraries(
    extension: SharedLibrary, toolchain: Toolchain
) -> tuple[dict[str, frozenset[str]], list[str]]:
    """Exports of the libraries in which the loader looks up an extension's symbols; names of missing ones.

    These are the program and its libraries, what torch makes global (libtorch_global_deps), and the libraries
    that the extension was linked with and theirs. libtorch_python is not among them: Python loads it with
    RTLD_LOCAL, and kernel-builder does not link it. Raises ElfError if the extension's own tables are wrong.
    """
    directories = tuple(_directories(toolchain))
    interpreter = toolchain.local(toolchain.python).resolve()
    program = _read(interpreter, interpreter.stat().st_mtime_ns)
    found, missing = {"": program.exports}, list[str]()
    waiting: list[tuple[str, tuple[Path, ...]]] = [("libtorch_global_deps.so", ())]
    waiting += [(name, _rpath(program, interpreter, toolchain)) for name in program.needed]
    waiting += [(name, ()) for name in extension.needed]
    for name, near in waiting:  # grows during the loop: breadth first, as the loader does
        if name in found or name in missing or len(found) >= _MAX_LIBRARIES:
            continue
        places = (d / name for d in (*near, *directories)) if re.fullmatch(r"[\w.+-]+", name) else iter(())
        path = next((place for place in places if place.is_file()), None)
        try:
            library = None if path is None else _read(path.resolve(), path.stat().st_mtime_ns)
        except (ElfError, OSError):
            library = None
        if library is None or path is None:
            missing.append(name)
            continue
        found[name] = library.exports
        waiting += [(needed, (*_rpath(library, path, toolchain), *near)) for needed in library.needed]
    return found, missing


def _rpath(library: _Readable, path: Path, toolchain: Toolchain) -> tuple[Path, ...]:
    """The search path of the library at `path`, as paths that can be read here."""
    origin = str(path.resolve().parent)
    return tuple(
        toolchain.local(Path(entry)) if entry.startswith("/") else Path(entry.replace("$ORIGIN", origin))
        for entry in library.search_path
    )


def _directories(toolchain: Toolchain) -> Iterator[Path]:
    if toolchain.torch_root is not None:
        yield toolchain.local(toolchain.torch_root) / "lib"
    if toolchain.cuda is not None and toolchain.cuda.library is not None:
        yield toolchain.local(toolchain.cuda.library)
    yield from map(toolchain.local, toolchain.libraries)


def unresolved(extension: SharedLibrary, target: Target, toolchain: Toolchain) -> tuple[list[str], int]:
    """Mangled names that no library provides, and the number of unproven ones. Raises ElfError.

    Unproven symbols could come from a CUDA build of torch that this machine lacks, or from a library that
    was not found. Weak symbols may stay undefined.
    """
    wanted = [s.name for s in extension.symbols() if not s.defined and not s.weak]
    loaded, missing = loaded_libraries(extension, toolchain)
    absent = [name for name in wanted if not any(name in exports for exports in loaded.values())]
    if missing:
        return [], len(absent)
    if target == "cpu" or toolchain.torch_cuda is not None:
        return absent, 0
    lacking = [name for name in absent if not only_in_cuda_torch(name)]
    return lacking, len(absent) - len(lacking)
