"""What kernel-abi-check says of a built library: Python's limited API, and manylinux.

The library, which comes out of a sandbox, is read in a child process and never loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Final

PYTHON_ABI: Final = "3.9"  # what upstream's `kernel-builder check-abi` asks for
MANYLINUX: Final = "manylinux_2_28"  # and this
_TIMEOUT_S: Final = 30.0
_NAMES_SHOWN: Final = 10

_CHECK: Final = """
import json, sys
try:
    from kernel_abi_check import ObjectFile
except ImportError:
    print(json.dumps(None))
    raise SystemExit
def problems(found):
    return sorted({" ".join(str(getattr(p, n)) for n in ("name", "dep", "version") if hasattr(p, n))
                   or str(p) for p in found})
library = ObjectFile(sys.argv[1])
print(json.dumps([problems(library.check_python_abi(sys.argv[2])),
                  problems(library.check_manylinux(sys.argv[3]))]))
"""


def abi_verdict(library: bytes) -> str | None:
    """What kernel-abi-check says of Python's limited API and of manylinux; None where it is not installed.

    The real builder links against an old glibc of its own; a build here is held to that in words only.
    """
    with tempfile.NamedTemporaryFile(suffix=".abi3.so") as file:
        file.write(library)
        file.flush()
        try:
            # In a child: native code that reads what a sandbox made.
            done = subprocess.run(
                [sys.executable, "-I", "-c", _CHECK, file.name, PYTHON_ABI, MANYLINUX],
                env={"LANG": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=True,
            )
            problems: list[list[str]] | None = json.loads(done.stdout)
        except (subprocess.SubprocessError, ValueError):
            return "the check itself failed"
    if problems is None:
        return None
    python, libc = problems
    verdicts = [
        f"not in Python's limited API of {PYTHON_ABI}: {', '.join(python[:_NAMES_SHOWN])}"
        if python
        else f"ok: Python >= {PYTHON_ABI}",
        f"newer than {MANYLINUX} through this machine's libraries: {', '.join(libc[:_NAMES_SHOWN])}"
        if libc
        else f"ok: {MANYLINUX}",
    ]
    return "; ".join(verdicts)
