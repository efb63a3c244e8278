"""The backends that need no root, used without it: their own tests, run by an unprivileged user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandboxes.host_job import CHOWN, KILL, SETGID, SETUID, SYS_ADMIN, FreeUsers, has_capabilities
from sandboxes.outside import __file__ as outside

ROOT = Path(__file__).resolve().parents[2]
# Without those that only wait, for a clock or for a thousand directories.
SKIPPED = "not freezing and not removes_everything and not wall_clock and not cpu_limit"


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not has_capabilities(CHOWN, KILL, SETGID, SETUID, SYS_ADMIN),
    reason="only root can become another user; without root the tests themselves are a plain user's",
)
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_as_a_plain_user(backend: str) -> None:
    """All that the backend's tests say holds for a user who is not root, too."""
    uid = FreeUsers().take()
    assert uid is not None
    with tempfile.TemporaryDirectory(prefix="liftbench-plain-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "home").mkdir(mode=0o700)
        os.chown(folder / "home", uid, uid)
        variables = {"HOME": f"{folder}/home", "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        pytest_words = [
            "-q",
            "-rs",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/home/tests",
            "-k",
            SKIPPED,
        ]
        spec = {
            "argv": [
                *("/usr/bin/env", "-C", str(ROOT)),
                *(f"{key}={value}" for key, value in variables.items()),
                *(sys.executable, "-m", "pytest", *pytest_words, f"tests/sandboxes/test_{backend}.py"),
            ],
            "cgroups": [],
            "cpus": None,
            "uid": uid,
            "readable": [str(ROOT), sys.prefix, sys.base_prefix],
            "staging": f"{folder}/mounts",
            "scratch": None,
        }
        done = subprocess.run(
            [sys.executable, "-I", "-S", outside, json.dumps(spec)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
