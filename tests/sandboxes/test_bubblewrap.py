"""The bubblewrap sandbox, with real processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.host_job import SYS_ADMIN, can_change_users
from sandboxes.inside import landlock_version
from tests.sandboxes.behaviours import HostFiles, Isolated, Starter, end_of, why_not

_REASON = why_not(BubblewrapBackend)
works = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


@pytest.fixture
def backend() -> BubblewrapBackend:
    """The backend under test."""
    return BubblewrapBackend()


@works
class TestBubblewrap(HostFiles, Isolated):
    """What all backends do that isolate with namespaces."""


@works
def test_process_one_is_out_of_reach(start: Starter) -> None:
    """bwrap's own process inside has the same profile, no environment, and memory that cannot be written."""
    code = """
import json, os
def tried(path, flags):
    try:
        with open(path, flags) as file:
            return file.read(64).hex()
    except OSError:
        return None
status = dict(line.split(":\\t", 1) for line in open("/proc/1/status") if ":\\t" in line)
print(json.dumps([status["Name"], int(status["Seccomp"]), tried("/proc/1/mem", "r+b") is None,
    tried("/proc/1/environ", "rb") in (None, "")]))
"""
    name, filtered, memory_is_closed, environment_is_empty = json.loads(end_of(start(code)).output)
    assert (name.strip(), filtered, environment_is_empty) == ("bwrap", 2, True)
    assert memory_is_closed or landlock_version() < 2


@works
def test_the_host_is_no_part_of_what_is_seen(start: Starter) -> None:
    """Accounts, host name and network devices are made up."""
    code = """
import os, socket
print(open("/etc/passwd").read().count("\\n"), os.getuid(), socket.gethostname())
print(open("/proc/net/dev").read().count(":"))
"""
    assert end_of(start(code)).output.split() == ["1", "65534", "liftbench", "1"]


def program(folder: Path, script: str) -> str:
    """An executable script in a place that any user can reach."""
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    for parent in (folder, *folder.parents):
        facts = parent.stat()
        if facts.st_uid == os.geteuid() and not facts.st_mode & 0o001:
            parent.chmod(facts.st_mode | 0o011)
    return str(path)


@pytest.mark.skipif(os.geteuid() == 0 and not can_change_users(SYS_ADMIN), reason="see above")
@pytest.mark.parametrize("option", ["--proc", "--disable-userns", "--unshare-user"])
def test_reasons(option: str, tmp_path: Path) -> None:
    """bwrap is not used without a /proc and namespaces of its own; its words and advice are shown."""
    script = f'case " $* " in *" {option} "*) echo \'bwrap: refused\' >&2; exit 1;; esac'
    with pytest.raises(SandboxError, match=r"(user namespaces|--sandbox landlock).*bwrap: refused"):
        BubblewrapBackend(program(tmp_path, script))
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        BubblewrapBackend(str(tmp_path / "none"))
