"""Users of their own: never a stranger's."""

from __future__ import annotations

import os
import pwd

import pytest

from sandboxes.users import FreeUsers


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
