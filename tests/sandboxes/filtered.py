"""Runs in a child: installs a seccomp program, then makes system calls or becomes another program.

Usage: python -I -S filtered.py PROGRAM_BASE64 call CALLS_JSON   prints {name: errno, 0 for success}
       python -I -S filtered.py PROGRAM_BASE64 run ARGV...
PROGRAM may be empty: whoever started us has installed one. CALLS_JSON is [[name, number, arguments...]].
An argument that is a string becomes the address of its bytes.
"""

import base64
import ctypes
import json
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)


def install(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, head, 0, 0):
        raise OSError(ctypes.get_errno(), "the filter could not be installed")


def attempt(number: int, arguments: list) -> int:
    held = [ctypes.create_string_buffer(a.encode()) if isinstance(a, str) else a for a in arguments]
    words = [ctypes.c_ulong(ctypes.addressof(a) if hasattr(a, "raw") else a) for a in held]
    ctypes.set_errno(0)
    failed = libc.syscall(ctypes.c_long(number), *words, *[ctypes.c_ulong(0)] * (6 - len(words))) == -1
    return ctypes.get_errno() if failed else 0


if sys.argv[1]:
    install(base64.b64decode(sys.argv[1]))
if sys.argv[2] == "run":
    os.execv(sys.argv[3], sys.argv[3:])
print(json.dumps({name: attempt(number, rest) for name, number, *rest in json.loads(sys.argv[3])}))
