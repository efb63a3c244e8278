"""Names of C++ symbols: what a mangled name belongs to, and how it reads.

Names are a student's. Classification rests on `qualified`, a few lines of ours; c++filt serves the wording
of messages only and runs in the sandbox, where it may fail or lie without harm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.builder.toolchain import Toolchain
from harness.errors import SandboxError
from sandboxes.job import Job, Limits, Sandbox
from sandboxes.orphans import owned_folder

_SPECIAL = re.compile(r"T[VTIS]|G[VR]|Th[n\d]+_|Tv[n\d]+_[n\d]+_")  # vtables, type info, guards, thunks
_STANDARD: Final = {
    "St": "std",
    "Sa": "std::allocator",
    "Sb": "std::basic_string",
    "Ss": "std::string",
    "Si": "std::istream",
    "So": "std::ostream",
    "Sd": "std::iostream",
}
_NUMBER = re.compile(r"L?(\d{1,5})")
_STRUCTOR = re.compile(r"C[123]|D[012]")
_MAX_PARTS: Final = 64
_PLAIN = re.compile(r"[\w.$]{1,4000}")
_FILTER_WALL_S: Final = 10.0
MAX_DEMANGLED: Final = 200


def qualified(symbol: str) -> str:
    """`_ZN2at4_ops2mm4callERKNS_6TensorES4_` -> `at::_ops::mm::call`, without arguments and template
    arguments; what is not mangled, or not understood, as it is."""
    if not symbol.startswith("_Z"):
        return symbol
    text = symbol[2:]
    special = _SPECIAL.match(text)
    text = text[special.end() :] if special else text
    # A local entity (`Z`) is named after the function that it is in.
    parts = _parts(re.sub(r"^Z*(N[rVKRO]*)?", "", text))
    return "::".join(parts) or symbol


def _parts(text: str) -> list[str]:
    parts: list[str] = []
    at = 0
    while len(parts) < _MAX_PARTS:
        number = _NUMBER.match(text, at)
        if number is not None:
            end = number.end() + int(number[1])
            name = text[number.end() : end]
            if len(name) != int(number[1]):
                break
            parts.append("(anonymous)" if name.startswith("_GLOBAL__N") else name)
            at = end
        elif text[at : at + 2] in _STANDARD and not parts:
            parts.append(_STANDARD[text[at : at + 2]])
            at += 2
        elif _STRUCTOR.match(text, at) and parts:
            tilde = "~" if text[at] == "D" else ""
            parts.append(tilde + parts[-1])
            break
        else:
            break
    return parts


def last_part(symbol: str) -> str:
    """The bare name of a function: `scale` for `demo::scale(int)` and for a C function."""
    return qualified(symbol).rpartition("::")[2]


def demangled(symbols: Sequence[str], toolchain: Toolchain, sandbox: Sandbox) -> dict[str, str]:
    """How symbols read, with arguments; those that c++filt does not know are left out.

    At most 200 are asked for. Never raises for want of c++filt or a sandbox: the qualified name serves.
    """
    wanted = [s for s in dict.fromkeys(symbols) if s.startswith("_Z") and _PLAIN.fullmatch(s)]
    wanted = wanted[:MAX_DEMANGLED]
    if not wanted or toolchain.gxx is None:
        return {}
    search = dict.fromkeys([str(toolchain.gxx.parent), "/usr/bin", "/bin"])
    with owned_folder("names") as folder:
        names = Path(folder) / "names"
        names.write_text("\n".join(wanted) + "\n")
        try:
            process = sandbox.start(
                Job(
                    role="build",
                    argv=["/bin/sh", "-c", "exec c++filt < {scratch}/names"],
                    limits=Limits(wall_s=_FILTER_WALL_S, memory_bytes=1 << 30),
                    inputs={"names": names},
                    environment={"PATH": ":".join(search), "LC_ALL": "C"},
                )
            )
        except SandboxError:
            return {}
        try:
            facts = process.wait()
        finally:
            process.close()
    lines = facts.output.splitlines() if facts is not None and facts.status == "ok" else []
    if len(lines) != len(wanted):
        return {}
    return {symbol: line for symbol, line in zip(wanted, lines, strict=True) if line != symbol}
