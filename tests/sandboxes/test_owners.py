"""Who owns a thing is told from its name, and a living owner is never called dead."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from sandboxes.orphans import Owner, owned_folder


def of_child(child: subprocess.Popen[str]) -> Owner:
    """As it says itself."""
    assert child.stdout is not None
    found = Owner.parse(child.stdout.readline().strip())
    assert found is not None
    return found


def test_an_owner_is_dead_after_its_end() -> None:
    """Alive while it runs, dead as soon as it has ended, also before anybody has waited for it."""
    code = "from sandboxes.orphans import Owner; print(Owner.ours(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        owner = of_child(child)
        assert owner.pid == child.pid
        assert not owner.is_dead()
        child.kill()
        child.stdout.read()  # type: ignore[union-attr]  # ends with it
        while not owner.is_dead():
            assert child.returncode is None
        child.wait()
        assert owner.is_dead()


def test_a_number_that_is_used_again() -> None:
    """A living process with the same number but another start is not the owner."""
    ours = Owner.ours()
    assert not ours.is_dead()
    assert replace(ours, start=ours.start - 1).is_dead()


def test_an_owner_that_we_cannot_see() -> None:
    """In another namespace of process ids nobody is called dead."""
    ours = Owner.ours()
    assert not replace(ours, pid=1, start=1, namespace=ours.namespace + 1).is_dead()


def test_words_that_name_nobody() -> None:
    """What str() made is read back; anything else is nobody."""
    assert Owner.parse(str(Owner.ours())) == Owner.ours()
    for word in ("", "1-2", "1-2-3-4", "a-2-3", "1-2--3", "99999999999-2-3"):
        assert Owner.parse(word) is None


def test_a_folder_names_its_owner() -> None:
    """It vanishes with its block."""
    with owned_folder("build") as name:
        assert f"liftbench-{Owner.ours()}-build-" in name
