"""Imports a package once and keeps the libraries that it compiles with torch.utils.cpp_extension.

Runs inside the sandbox, in the build role; standard library and torch only. argv: folder of the package, its
name, folder for the libraries, directories to import from. Exits with 3 and prints why if a compilation
failed. An import that fails otherwise, such as without a GPU, does not fail the build: the worker repeats it.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAILED = 3


def keep(original: Callable[..., Any], kept: Path) -> Callable[..., Any]:
    """Wrap `load` or `load_inline` of torch: copy the library to `kept`, named after the extension."""

    def compile_and_keep(name: str, *words: Any, **named: Any) -> Any:
        import torch.utils.cpp_extension as extension

        # Without a build folder of its own, the extension's name decides it.
        place = named.get("build_directory") or extension._get_build_directory(name, False)
        named["build_directory"] = place
        named.pop("verbose", None)
        try:
            module = original(name, *words, **named, verbose=True)
        except (RuntimeError, OSError) as error:
            traceback.print_exc(limit=-1)
            # SystemExit: the package's own `except Exception` must not hide the failure.
            sys.stdout.write(f"{name}: {type(error).__name__}: {str(error)[:2000]}\n")
            sys.stdout.flush()
            sys.stderr.flush()
            raise SystemExit(FAILED) from error
        found = sorted(Path(place).glob("*.so"), key=lambda path: path.stat().st_mtime_ns)
        if found:
            shutil.copyfile(found[-1], kept / f"{name}.so")
        return module

    return compile_and_keep


def main() -> int:
    folder, name, kept = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    sys.path[:0] = [folder, *sys.argv[4:]]
    import torch.utils.cpp_extension as extension

    kept.mkdir(parents=True, exist_ok=True)
    extension.load_inline = keep(extension.load_inline, kept)
    extension.load = keep(extension.load, kept)
    try:
        importlib.import_module(name)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - any error of the project; the worker reports it
        traceback.print_exc()
    return 0


if __name__ == "__main__":
    sys.exit(main())
