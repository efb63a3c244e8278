"""inside.py as a program: messages, limits, Landlock; it never runs a job with fewer restrictions."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sandboxes.host_process import INSIDE
from sandboxes.inside import landlock_version

NO_LIMITS = {"cpu_s": None, "file_bytes": None, "address_bytes": None, "processes": None}
ALLOW_ALL = base64.b64encode(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)).decode()
PYTHON = [sys.executable, "-I", "-S"]
# The interpreter that becomes the job, and what it loads.
SYSTEM = [["read", "/", ["usr", "lib", "lib64", "etc/ld.so.cache"]], ["read", "/proc", ["self"]]]


class Inside:
    """One run of inside.py, and our end of its channel."""

    def __init__(self, scratch: Path, **changes: Any) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(30)
        spec = {
            "channel": str(theirs.fileno()),
            "scratch": str(scratch),
            "environment": {"HOME": "{scratch}"},
            "limits": NO_LIMITS,
            "landlock": None,
            "counted": [],
            "seccomp": ALLOW_ALL,
            "reaps": False,
            "die_with_parent": False,
            "preload": [],
            "site": [],
        }
        self.process = subprocess.Popen(
            [*PYTHON, str(INSIDE), json.dumps({**spec, **changes})],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        theirs.close()

    def ready(self) -> int:
        """Its scratch directory's descriptor."""
        data, descriptors, _, _ = socket.recv_fds(self.channel, 1 << 16, 4)
        assert json.loads(data) == {"ready": True}
        (directory,) = descriptors
        return directory

    def go(self, *argv: str) -> tuple[str, str]:
        """What it says of a failed start, and what the job prints."""
        failures, failures_end = os.pipe()
        output, output_end = os.pipe()
        message = json.dumps({"argv": argv}).encode()
        socket.send_fds(self.channel, [message], [failures_end, output_end])
        os.close(failures_end)
        os.close(output_end)
        with os.fdopen(failures) as failed, os.fdopen(output) as printed:
            return failed.read(), printed.read()

    def startup_output(self) -> str:
        """What it prints when it does not become ready; it ends by that."""
        assert self.process.stdout is not None
        text = self.process.stdout.read().decode()
        assert self.process.wait(30) != 0
        return text

    def close(self) -> None:
        """End it."""
        self.channel.close()
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Inside]]:
    """Those that a test starts."""
    found: list[Inside] = []
    yield found
    for inside in found:
        inside.close()


def start(started: list[Inside], scratch: Path, **changes: Any) -> Inside:
    """One more."""
    started.append(Inside(scratch, **changes))
    return started[-1]


def test_incomplete_orders_and_specs_end_it(started: list[Inside], tmp_path: Path) -> None:
    """With one line: an invalid filter, an order without descriptors, a spec that is not JSON."""
    refused = start(started, tmp_path, seccomp=base64.b64encode(bytes(8)).decode())
    assert "seccomp" in refused.startup_output()
    inside = start(started, tmp_path)
    os.close(inside.ready())
    inside.channel.send(b'{"argv": ["/bin/true"]}')
    output = inside.startup_output()
    assert output.startswith("ValueError") and output.count("\n") == 1
    done = subprocess.run([*PYTHON, str(INSIDE), "{"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


# --- Landlock -----------------------------------------------------------------------------------

landlocked = pytest.mark.skipif(landlock_version() < 1, reason="this kernel has no Landlock")
SH = ["/bin/sh", "-c"]


def confined(started: list[Inside], scratch: Path, rules: list[Any], script: str) -> list[str]:
    """What a shell prints under SYSTEM's rules and `rules`."""
    inside = start(started, scratch, landlock=[*existing(SYSTEM), ["write", str(scratch), [""]], *rules])
    os.close(inside.ready())
    failure, printed = inside.go(*SH, script)
    assert failure == ""
    return printed.split("\n")[:-1]


def existing(rules: list[Any]) -> list[Any]:
    """Without what this machine lacks."""
    return [[right, place, [n for n in names if Path(place, n).exists()]] for right, place, names in rules]


@landlocked
def test_landlock_rules(started: list[Inside], tmp_path: Path) -> None:
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
echo listed/*; echo other/*; exit 0"""
    rules = [
        ["read", str(folders["given"]), [""]],
        ["list", str(folders["listed"]), [""]],
        ["write", str(folders["one"]), ["file"]],
    ]
    printed = [line for line in confined(started, folders["scratch"], rules, script) if "denied" not in line]
    assert printed == [
        *("r scratch/file", "w scratch/file", "r given/file", "r one/file", "w one/file", "w scratch/new"),
        *("listed/beside listed/file", "other/*"),
    ]
    assert (folders["one"] / "beside").read_text() == "one\n"


@landlocked
def test_a_device_needs_its_own_right(started: list[Inside], tmp_path: Path) -> None:
    """A device with the right `read` cannot be written."""
    rules = [["device", "/dev", ["null"]], ["read", "/dev", ["zero"]]]
    script = "echo > /dev/null && echo null; echo > /dev/zero && echo zero; exit 0"
    printed = confined(started, tmp_path, rules, script)
    assert [line for line in printed if "denied" not in line] == ["null"]


@landlocked
def test_a_rule_for_what_is_not_there(started: list[Inside], tmp_path: Path) -> None:
    """A path that is missing is named, and nothing runs with a rule less."""
    inside = start(started, tmp_path, landlock=[["read", str(tmp_path), ["missing"]]])
    assert f"{tmp_path}/missing" in inside.startup_output()


@landlocked
def test_moving_between_directories(started: list[Inside], tmp_path: Path) -> None:
    """From ABI 2 on, files in scratch can be moved and linked from one directory to another."""
    if landlock_version() < 2:
        pytest.skip("needs Landlock ABI 2")
    script = "mkdir a; echo x > b; mv b a/b && ln a/b c && rm a/b && echo moved"
    assert confined(started, tmp_path, [], script) == ["moved"]
