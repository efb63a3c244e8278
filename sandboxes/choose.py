"""Chooses a sandbox by name.

Owns: the names and what `auto` means. Does not own: the backends.
Until an isolating backend is built, `auto` is `local`, and the user is warned.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.errors import UsageError
from sandboxes.caged import CagedSandbox
from sandboxes.job import Sandbox
from sandboxes.local import LocalBackend


def _local() -> Sandbox:
    return CagedSandbox(LocalBackend())


_BACKENDS: dict[str, Callable[[], Sandbox]] = {"auto": _local, "local": _local}
_PLANNED = ("docker", "bubblewrap", "landlock")

LOCAL_WARNING = (
    "sandbox `local` does not isolate: projects can use the network and read what you can read. "
    "Use it for projects you trust."
)


def choose_sandbox(wanted: str) -> Sandbox:
    """The first of the comma-separated names that can be had. Raises UsageError when none can."""
    refused = []
    for name in wanted.split(","):
        if name in _BACKENDS:
            return _BACKENDS[name]()
        refused.append(f"{name} is not built yet" if name in _PLANNED else f"{name!r} is no sandbox")
    raise UsageError(f"no sandbox to use: {'; '.join(refused)}. To run without isolation: --sandbox local")
