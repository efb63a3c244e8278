"""Runs INSIDE a sandbox, without torch: prints the GPUs and the libcuda found there, and what cannot be read.

seen.py FILE...
"""

import ctypes
import hashlib
import json
import sys
from pathlib import Path
from typing import Any


def _ask(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise SystemExit(f"{name} failed with CUresult {code}")


def _gpus(library: ctypes.CDLL) -> list[str]:
    count, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _ask(library, "cuInit", 0)
    _ask(library, "cuDeviceGetCount", ctypes.byref(count))
    found = []
    for index in range(count.value):
        _ask(library, "cuDeviceGetUuid_v2", uuid, index)
        found.append(bytes(uuid).hex())
    return found


def _unreadable(names: list[str]) -> list[str]:
    failed = []
    for name in names:
        try:
            Path(name).read_bytes()
        except OSError as error:
            failed.append(f"{name} ({error.strerror})")
    return failed


def main() -> None:
    """One JSON object."""
    gpus = _gpus(ctypes.CDLL("libcuda.so.1"))
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    (libcuda,) = {Path(name) for name in mapped if "/libcuda.so" in name}
    told = {
        "gpus": " ".join(gpus),
        "libcuda": str(libcuda),
        "libcuda_sha256": hashlib.sha256(libcuda.read_bytes()).hexdigest(),
        "unreadable": "; ".join(_unreadable(sys.argv[1:])) or "-",
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
