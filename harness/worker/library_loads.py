"""Runs INSIDE the sandbox, beside __main__.py: records what a project's Python has the loader open or look
up.

A call that only calls operators triggers nothing, so a timed call pays nothing; the list is bounded. It
does not see functions called at addresses that Python read elsewhere (/proc/self/maps), modules that were
imported before the project (torch imports numpy), and native code.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

_MOST_NAMES = 20
_NAME_CHARS = 200
_MOST_BYTES = 4_000
_OPENS, _CALLS, _IMPORTS = "ctypes.dlopen", "ctypes.call_function", "import"
_LOOKS_UP = ("ctypes.dlsym", "ctypes.dlsym/handle")
_EVENTS = frozenset({_OPENS, _CALLS, _IMPORTS, *_LOOKS_UP})
_OUR_FILES = str(Path(__file__).parent) + os.sep
_TORCH = Path(torch.__file__).parent
# Code that loads things on its own behalf: ours, torch, and Triton, which loads what it compiled.
_OTHERS = (_OUR_FILES, str(_TORCH) + os.sep, str(_TORCH.with_name("triton")) + os.sep)
_EXTENSIONS = str(Path(os.__file__).parent / "lib-dynload") + os.sep


class _Place(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_libc = ctypes.CDLL(None)
_dlsym, _dladdr = _libc.dlsym, _libc.dladdr
_dlsym.restype, _dlsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
_dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Place)]


class Loads:
    """Audits what a project's Python loads beside its own package; the hook cannot be removed."""

    def __init__(self, package: Path) -> None:
        self._package = str(package.resolve()) + os.sep
        self._found: dict[str, None] = {}
        sys.addaudithook(self._hook)

    def account(self) -> dict[str, Any]:
        """The first 20 names, fewer where they are long."""
        kept, size = [], 0
        for name in self._found:
            size += len(json.dumps(name)) + 2
            if size > _MOST_BYTES:
                break
            kept.append(name)
        return {"loads": kept}

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's audit hook, in any thread. Never raises, since that would forbid the event."""
        if event not in _EVENTS:
            return
        try:
            said = self._said(event, arguments)
        except Exception as error:  # noqa: BLE001 - recorded: only odd arguments come here
            said = f"something that cannot be named ({event}: {type(error).__name__})"
        if said is not None and len(self._found) < _MOST_NAMES:
            self._found[said[:_NAME_CHARS]] = None

    def _said(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        if event == _IMPORTS:
            module, file = arguments[:2]
            # None: a module's import begins. Otherwise its library is about to be opened.
            if file is None or self._own(file) or str(file).startswith(_EXTENSIONS):
                return None
            return f"import of {module}" if self._asked() else None
        if not self._asked():
            return None
        if event == _OPENS:
            (library,) = arguments
            if library is None:
                return "ctypes: the process itself"
            return None if self._own(library) else f"ctypes: {Path(os.fsdecode(library)).name}"
        if event == _CALLS:
            return "ctypes: a function by its address"
        return self._looked_up(*arguments)

    def _own(self, file: str | bytes | os.PathLike[str]) -> bool:
        return os.path.realpath(os.fsdecode(file)).startswith(self._package)

    def _looked_up(self, library: Any, name: str | int) -> str | None:
        symbol = os.fsencode(str(name))
        address = _dlsym(library if isinstance(library, int) else library._handle, symbol)
        if not address:
            return None
        place = _Place()
        file = place.file if _dladdr(address, ctypes.byref(place)) else None
        if file is None:
            return f"ctypes: {name}"
        return None if self._own(file) else f"ctypes: {name} of {Path(os.fsdecode(file)).name}"

    def _asked(self) -> bool:
        frame = sys._getframe()
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._package):
                return True
            if file.startswith(_OTHERS) and frame.f_globals is not globals():
                return False
            frame = frame.f_back  # type: ignore[assignment]
        return True
