"""Reads what a shared library tells the loader: its symbols, the libraries it needs, its strings.

The bytes are hostile. Every offset is checked, every count is capped, and whatever is wrong is an ElfError.
Section headers are not believed: the loader never reads them.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

Buffer = bytes | mmap.mmap

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_DYNAMIC: Final = struct.Struct("<qQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION_BYTES: Final = 24
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 1, 5, 6, 10
_DT_HASH, _DT_RPATH, _DT_RUNPATH, _DT_GNU_HASH = 4, 15, 29, 0x6FFFFEF5
_RELOCATION_TABLES: Final = ((7, 8), (23, 2))  # DT_RELA with DT_RELASZ, DT_JMPREL with DT_PLTRELSZ
_WEAK, _UNIQUE = 2, 10

# libtorch_cpu.so has 75,000 dynamic symbols and 12 MB of their names; an extension has hundreds.
MAX_SYMBOLS: Final = 1 << 19
MAX_NAME_BYTES: Final = 1 << 16
_MAX_NAMES_BYTES: Final = 1 << 27
_MAX_STRINGS: Final = 10_000


class ElfError(ValueError):
    """The bytes are no shared library for x86-64 that could be read safely; the text says why."""


@dataclass(frozen=True)
class Symbol:
    """One dynamic symbol."""

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
            raise ElfError("its parts overlap")  # reading each of them would take for ever
        dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
        if dynamic is None:
            raise ElfError("it has no dynamic segment")
        self._tags = self._read_dynamic(dynamic[2], dynamic[5])
        first: dict[int, int] = {}
        for tag, value in self._tags:
            first.setdefault(tag, value)
        self._first = first
        self._strings_at = self._offset(first.get(_DT_STRTAB, 0))
        self._strings_size = min(first.get(_DT_STRSZ, 0), size - self._strings_at)
        self._symbols_at = self._offset(first.get(_DT_SYMTAB, 0))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a file; only the pages that are looked at are read. Raises ElfError and OSError."""
        with path.open("rb") as file:
            try:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError as error:  # mmap says so of an empty file
                raise ElfError(f"{path.name}: {error}") from error

    # --- reading with bounds -------------------------------------------------------------------

    def _unpack(self, form: struct.Struct, offset: int) -> tuple[Any, ...]:
        try:
            return form.unpack_from(self._data, offset)
        except (struct.error, OverflowError):
            raise ElfError(f"it ends before offset {offset} + {form.size}") from None

    def _offset(self, address: int) -> int:
        """Where the bytes of a loaded address lie in the file."""
        for start, offset, size in self._loads:
            if start <= address < start + size:
                return int(offset + address - start)
        raise ElfError(f"address {address:#x} is in no loaded part of the file")

    def _read_dynamic(self, offset: int, size: int) -> list[tuple[int, int]]:
        tags = []
        for at in range(offset, offset + min(size, _DYNAMIC.size * 4096), _DYNAMIC.size):
            tag, value = self._unpack(_DYNAMIC, at)
            if tag == 0:
                break
            tags.append((tag, value))
        return tags

    def _string(self, index: int) -> str:
        if index >= self._strings_size:
            raise ElfError("a name lies outside its table")
        start = self._strings_at + index
        end = self._strings_at + self._strings_size
        stop = self._data.find(b"\0", start, min(end, start + MAX_NAME_BYTES))
        if stop < 0:
            raise ElfError("a name does not end within its table")
        return self._data[start:stop].decode(errors="backslashreplace")

    # --- what it says --------------------------------------------------------------------------

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

    def exports(self, name: str) -> bool:
        """Whether the loader would find `name` here, by the GNU hash table. Raises ElfError."""
        table = self._gnu_hash()
        if table is None:
            raise ElfError("it has no GNU hash table")
        wanted = name.encode()
        value = _gnu_hash_of(wanted)
        index = self._word(table.buckets + 4 * (value % table.bucket_count))
        while index >= table.first:
            chain = self._word(table.chains + 4 * (index - table.first))
            if chain | 1 == value | 1 and self._is_export(index, wanted):
                return True
            if chain & 1:
                return False
            index += 1
        return False

    def strings(self, pattern: re.Pattern[bytes]) -> set[str]:
        """What `pattern` matches in the loaded parts of the file; at most 10,000 different strings."""
        found: set[bytes] = set()
        for _, offset, size in self._loads:
            for match in pattern.finditer(self._data, offset, offset + size):
                found.add(match[0])
                if len(found) >= _MAX_STRINGS:
                    break
        return {text.decode(errors="backslashreplace") for text in found}

    # --- tables --------------------------------------------------------------------------------

    def _word(self, offset: int) -> int:
        return int(self._unpack(_WORD, offset)[0])

    def _is_export(self, index: int, wanted: bytes) -> bool:
        name, info, _, section, _, _ = self._unpack(_SYMBOL, self._symbols_at + index * _SYMBOL.size)
        if section == 0 or info >> 4 not in (1, _WEAK, _UNIQUE):
            return False
        start = self._strings_at + name
        return self._data[start : start + len(wanted) + 1] == wanted + b"\0"

    def _gnu_hash(self) -> _GnuHash | None:
        address = self._first.get(_DT_GNU_HASH)
        if address is None:
            return None
        at = self._offset(address)
        bucket_count, first, bloom_words, _ = self._unpack(struct.Struct("<4I"), at)
        if not 0 < bucket_count <= MAX_SYMBOLS or bloom_words > MAX_SYMBOLS or first > MAX_SYMBOLS:
            raise ElfError("its hash table has an impossible size")
        buckets = at + 16 + 8 * bloom_words
        return _GnuHash(bucket_count, first, buckets, buckets + 4 * bucket_count)

    def _symbol_count(self) -> int:
        """The table's length stands nowhere: the hash tables know it, and relocations refer into it."""
        counts = [1]
        if _DT_HASH in self._first:
            counts.append(self._word(self._offset(self._first[_DT_HASH]) + 4))
        table = self._gnu_hash()
        if table is not None:
            counts.append(self._hashed_end(table))
        counts += [self._highest_in_relocations(start, size) + 1 for start, size in _RELOCATION_TABLES]
        count = max(counts)
        if count > MAX_SYMBOLS:
            raise ElfError(f"it has more than {MAX_SYMBOLS} symbols")
        return count

    def _hashed_end(self, table: _GnuHash) -> int:
        """One past the last symbol of the last chain; undefined symbols stand before the first."""
        buckets = [self._word(table.buckets + 4 * i) for i in range(table.bucket_count)]
        index = max(buckets)
        if index < table.first:
            return table.first
        while not self._word(table.chains + 4 * (index - table.first)) & 1:
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


_WORD: Final = struct.Struct("<I")


@dataclass(frozen=True)
class _GnuHash:
    bucket_count: int
    first: int
    """Index of the first symbol in the table: those before it cannot be found."""
    buckets: int
    chains: int


def _gnu_hash_of(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
