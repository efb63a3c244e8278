"""What a built library calls: evidence from its undefined symbols and the operator names in it.

The library is hostile: it is read, never loaded, and what cannot be read is None, which grade.py does not
take for innocence.

What this cannot see: calls made in the package's Python files, names looked up with dlsym, code that
is linked in statically, raw system calls, and operator names that are put together at run time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harness.builder.binary.call_classes import OPERATOR_NAME, Class, classify, classify_operator
from harness.builder.binary.elf import ElfError, SharedLibrary
from harness.builder.binary.loading import unresolved
from harness.builder.binary.symbol_names import demangled, last_part, qualified
from harness.builder.toolchain import Toolchain
from harness.records import BinaryCalls, Target
from sandboxes.job import Sandbox

_NAMES_KEPT: Final = 100
_NAME_LENGTH: Final = 300
_ALIKE_SHOWN: Final = 3
BY_NAME: Final = " (by name)"


def binary_calls(
    library: bytes, target: Target, toolchain: Toolchain, sandbox: Sandbox
) -> BinaryCalls | None:
    """What a shared library calls; None when its tables cannot be read."""
    try:
        extension = SharedLibrary(library)
        symbols = extension.symbols()
        lacking, unproven = unresolved(extension, target, toolchain)
    except (ElfError, OSError):
        return None
    found = _classes(qualified(s.name) for s in symbols if not s.defined)
    if found["dispatcher"]:
        for name in extension.strings(OPERATOR_NAME):
            found[classify_operator(name)].add(name + BY_NAME)
    defined = [s.name for s in symbols if s.defined]
    return BinaryCalls(
        compute=_kept(found["compute"]),
        library=_kept(found["library"]),
        dispatcher=_kept(found["dispatcher"]),
        tensor=_kept(found["tensor"]),
        runtime=_kept(found["runtime"]),
        system=_kept(found["system"]),
        unresolved=_kept(_explained(lacking, defined, toolchain, sandbox)),
        unproven=unproven,
    )


def _classes(names: Iterable[str]) -> defaultdict[Class, set[str]]:
    found: defaultdict[Class, set[str]] = defaultdict(set)
    for name in names:
        kind = classify(name)
        if kind is not None:
            found[kind].add(name)
    return found


def _kept(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted and bounded: a library may name a hundred thousand."""
    ordered = sorted(name[:_NAME_LENGTH] for name in names)
    rest = len(ordered) - _NAMES_KEPT
    return (*ordered[:_NAMES_KEPT], f"and {rest} more") if rest > 0 else tuple(ordered)


# --- what an unresolved symbol means ---------------------------------------------------------


def _explained(
    lacking: Sequence[str], defined: Sequence[str], toolchain: Toolchain, sandbox: Sandbox
) -> list[str]:
    """Each name as it reads, with what the library has instead."""
    alike: dict[str, list[str]] = {last_part(name): [] for name in lacking}
    for other in defined if lacking else ():  # once: there may be half a million
        found = alike.get(last_part(other))
        if found is not None and len(found) < _ALIKE_SHOWN:
            found.append(other)
    shown = lacking[: _NAMES_KEPT + 1]
    others = [other for name in shown for other in alike[last_part(name)]]
    readable = demangled([*shown, *others], toolchain, sandbox)
    told = [_hint(name, alike[last_part(name)], readable) for name in shown]
    return told + [qualified(name) for name in lacking[len(shown) :]]


def _hint(name: str, alike: Sequence[str], readable: Mapping[str, str]) -> str:
    text = readable.get(name, qualified(name))
    if alike:
        others = " and ".join(readable.get(other, _plain(other)) for other in alike)
        return f"{text}: declared like this where it is called, but defined as {others}"
    if name.startswith("cu") and name[2:3].isupper() and not name.startswith(("cublas", "cusolver")):
        return f"{text}: the CUDA driver is not linked; ask cudaGetDriverEntryPointByVersion for it"
    if name.startswith("_Z") and not qualified(name).startswith(("at::", "c10::", "torch::", "std::")):
        return f"{text}: declared and called, but defined in no file that build.toml lists"
    return text


def _plain(symbol: str) -> str:
    """A C function, or a C++ name that could not be demangled."""
    return qualified(symbol) if symbol.startswith("_Z") else f'extern "C" {symbol}'
