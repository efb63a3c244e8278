"""Runs the suite for one column: a backend, with liftbench as root or as a plain user.

A column that cannot be measured says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.errors import InfraError, UsageError
from sandboxes.host_job import FreeUsers
from sandboxes.job import RoleName
from sandboxes.outside import blocked_ancestor
from sandboxes.registry import open_sandbox
from tools.attack_expected import Column
from tools.attack_session import UNAVAILABLE, Report, load_report, observe

_ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT_S = 300.0


class Unavailable(Exception):
    """This column cannot be measured on this machine; the message says why."""


def measure(column: Column, battery: Path, role: RoleName = "run") -> Report:
    """Run all attacks (as a plain user always in the role `run`). Raises Unavailable."""
    backend, _, as_user = column.partition(" as ")
    if as_user and os.geteuid() == 0:
        return _as_plain_user(backend, battery)
    if not as_user and os.geteuid() != 0 and backend != "docker":
        raise Unavailable("needs root")
    try:
        sandbox = open_sandbox(backend)
    except (UsageError, InfraError) as error:
        raise Unavailable(str(error)) from error
    try:
        return observe(sandbox, battery, role)
    finally:
        sandbox.close()


def _as_plain_user(backend: str, battery: Path) -> Report:
    """In a process of a user that nobody is, with a copy of what it needs."""
    python = _passable_python()
    uid = FreeUsers().take()
    assert uid is not None
    with tempfile.TemporaryDirectory(prefix="attacks-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        skip = shutil.ignore_patterns("__pycache__", "_data")
        for part in ("harness", "sandboxes", "tests/sandbox"):
            shutil.copytree(_ROOT / part, folder / part, ignore=skip)
        shutil.copy(battery, folder / "battery")
        (folder / "own").mkdir()
        os.chown(folder / "own", uid, uid)
        subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
        result = folder / "own/result.json"
        done = subprocess.run(
            [python, "-m", "tools.attack_session", backend, str(folder / "battery"), str(result)],
            user=uid,
            group=uid,
            extra_groups=[],
            cwd=folder,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder / "own"), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode == UNAVAILABLE:
            raise Unavailable(f"as a plain user: {done.stderr.strip()}")
        if done.returncode != 0:
            raise RuntimeError(f"the suite failed as a plain user: {done.stderr}")
        return load_report(result.read_text())


def _passable_python() -> str:
    """A Python 3.11 or later that any user can run. Raises Unavailable."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        path = Path(candidate)
        if not path.exists() or blocked_ancestor(path.resolve()) is not None:
            continue
        check = "import sys; sys.exit(sys.version_info < (3, 11))"
        if subprocess.run([candidate, "-c", check], check=False).returncode == 0:
            return candidate
    raise Unavailable(
        "as a plain user: no Python 3.11 that other users may run (this one is in a closed folder)"
    )
