"""Users of their own: never a stranger's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandboxes.users import CHOWN, SETUID, FreeUsers, may, threads_of


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_free_users_differ() -> None:
    """No two of a hundred are equal, none has an account, and none is ours."""
    users = FreeUsers()
    taken = [users.take() for _ in range(100)]
    assert len(set(taken)) == 100
    assert not {entry.pw_uid for entry in pwd.getpwall()} & set(taken)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can become another user")
def test_without_root_there_is_none() -> None:
    """Without root a job stays the same user."""
    assert FreeUsers().take() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has powers to lose")
def test_root_without_powers_becomes_nobody_else() -> None:
    """A container's root may have no capabilities: then there is no other user to become."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here: apt-get install util-linux")
    code = "from sandboxes.users import FreeUsers; print(FreeUsers().take())"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "None"
    assert may(CHOWN, SETUID)


def test_threads_are_counted() -> None:
    """A user's threads count one by one, as they do for the kernel's limit."""
    before, hold = threads_of(os.getuid()), threading.Event()
    extra = [threading.Thread(target=hold.wait) for _ in range(200)]
    for thread in extra:
        thread.start()
    try:
        # Other processes of this user come and go meanwhile.
        assert threads_of(os.getuid()) > before + 100
    finally:
        hold.set()
        for thread in extra:
            thread.join()
