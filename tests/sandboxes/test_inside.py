"""inside.py: bad orders, and Landlock rules as the kernel takes them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandboxes.host_process import INSIDE
from sandboxes.inside import landlock_version

ROOT = Path(__file__).resolve().parents[2]
SPEC = {
    "environment": {},
    "limits": {"cpu_s": None, "file_bytes": None, "address_bytes": None, "processes": None},
    "landlock": None,
    "counted": [],
    "seccomp": "BgAAAAAA/38=",  # allows everything
    "reaps": False,
    "die_with_parent": False,
    "preload": [],
    "site": [],
}


@pytest.mark.parametrize(
    ("changes", "order", "complaint"),
    [
        ({}, b'{"argv": ["/bin/true"]}', "ValueError"),  # without descriptors
        ({"seccomp": "AAAAAAAAAAA="}, b"", "seccomp"),
        ({"landlock": [["read", "/nowhere", [""]]]}, b"", "/nowhere"),
        ({"scratch": "/nowhere"}, b"", "/nowhere"),
    ],
    ids=["order", "filter", "rule", "scratch"],
)
def test_incomplete_orders_and_specs_end_it(
    tmp_path: Path, changes: dict[str, Any], order: bytes, complaint: str
) -> None:
    """With one line, before the job: nothing runs with a restriction less."""
    if "landlock" in changes and landlock_version() < 1:
        pytest.skip("this kernel has no Landlock")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        if order:
            ours.send(order)
        spec = {**SPEC, "channel": str(theirs.fileno()), "scratch": str(tmp_path), **changes}
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(INSIDE), json.dumps(spec)],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert complaint in done.stderr and done.stderr.count("\n") == 1


CONFINED = """
import ctypes, json, os, sys
from sandboxes.inside import confine
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
confine(json.loads(sys.argv[1]), libc)
os.execv("/bin/sh", ["sh", "-c", sys.argv[2]])
"""


def confined(rules: list[Any], script: str) -> list[str]:
    """What a shell prints under `rules` and those that it needs itself."""
    if landlock_version() < 2:
        pytest.skip("needs Landlock ABI 2")
    system = [name for name in ("usr", "lib", "lib64", "etc/ld.so.cache") if Path("/", name).exists()]
    words = [json.dumps([["read", "/", system], *rules]), script]
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\n")[:-1]


def test_landlock_rules(tmp_path: Path) -> None:
    """`write` for scratch and a file, `read` for a directory, `list` for names; nothing else."""
    folders = {name: tmp_path / name for name in ("scratch", "given", "other", "listed", "one")}
    for name, folder in folders.items():
        folder.mkdir()
        for file in ("file", "beside"):
            (folder / file).write_text(f"{name}\n")
    script = f"""cd {tmp_path}
for f in scratch/file given/file other/file listed/file one/file one/beside; do
  read x < $f && echo r $f; echo changed > $f && echo w $f
done
echo > scratch/new && echo w scratch/new; echo > given/new && echo w given/new
echo listed/*; echo other/*
cd scratch; mkdir a; mv new a/new && ln a/new c && rm a/new && echo moved"""
    rules = [
        ["write", str(folders["scratch"]), [""]],
        ["read", str(folders["given"]), [""]],
        ["list", str(folders["listed"]), [""]],
        ["write", str(folders["one"]), ["file"]],
    ]
    assert confined(rules, script) == [
        *("r scratch/file", "w scratch/file", "r given/file", "r one/file", "w one/file", "w scratch/new"),
        *("listed/beside listed/file", "other/*", "moved"),
    ]
    assert (folders["one"] / "beside").read_text() == "one\n"


def test_a_device_needs_its_own_right() -> None:
    """A device with the right `read` cannot be written."""
    rules = [["device", "/dev", ["null"]], ["read", "/dev", ["zero"]]]
    script = "(echo > /dev/null) && echo null; (echo > /dev/zero) && echo zero"
    assert confined(rules, script) == ["null"]
    assert os.access("/dev/zero", os.W_OK)
