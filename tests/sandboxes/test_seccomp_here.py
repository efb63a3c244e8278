"""The filter in this machine's kernel, around real programs."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.seccomp import compile_filter, profile
from tests.sandboxes.attempts import FILTERED, HERE, MARK, calls, check, marked


def in_filter(program: bytes, *words: str) -> subprocess.CompletedProcess[str]:
    """Run filtered.py, away from any terminal."""
    command = [sys.executable, "-I", "-S", str(FILTERED), base64.b64encode(program).decode(), *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def here() -> bytes:
    """The whole profile for this machine."""
    return compile_filter(profile(), HERE)


def test_the_kernel_refuses_what_the_profile_refuses(tmp_path: Path) -> None:
    """About 90 forbidden calls are refused by the filter itself, and 24 that programs need are not."""
    refused, allowed = calls(str(tmp_path))
    done = in_filter(compile_filter(marked(), HERE), "call", json.dumps(refused + allowed))
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), str(tmp_path), MARK)


def test_threads_children_and_sockets_work(here: bytes) -> None:
    """What Python programs do every day is untouched."""
    script = (
        "import threading, subprocess, socket, multiprocessing.shared_memory as m, sys, tempfile, shutil\n"
        "t = threading.Thread(target=lambda: print('thread', flush=True)); t.start(); t.join()\n"
        "print(subprocess.run(['/bin/sh', '-c', 'ls / | wc -l; exit 3'], capture_output=True).returncode)\n"
        "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
        "s = m.SharedMemory(create=True, size=64); s.close(); s.unlink()\n"
        "d = tempfile.mkdtemp(); shutil.copyfile(sys.executable, d + '/x'); shutil.rmtree(d)\n"
        "try: socket.socket(socket.AF_INET)\n"
        "except PermissionError: print('no network')\n"
    )
    done = in_filter(here, "run", sys.executable, "-I", "-c", script)
    assert done.stdout.split("\n") == ["thread", "3", "b'x'", "no network", ""], done.stderr


@pytest.mark.slow
def test_torch_compile_works(here: bytes, tmp_path: Path) -> None:
    """Its workers, compiler and cache run: the reference may use it."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    script = (
        "import os; os.environ['TORCHINDUCTOR_CACHE_DIR'] = os.sys.argv[1]\n"
        "import torch; f = torch.compile(lambda x: (x * 2).sin().sum())\n"
        "print(round(float(f(torch.zeros(64))), 3))\n"
    )
    done = in_filter(here, "run", sys.executable, "-W", "ignore", "-c", script, str(tmp_path))
    assert done.stdout == "0.0\n", done.stderr
