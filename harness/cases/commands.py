"""Runs the command of a check inside a sandbox.

A command never runs outside a sandbox; it works on a copy of the files; whatever it does, and however long
it takes, is an outcome and no exception. Only a sandbox that fails raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.cases.records import Check, CheckOutcome
from harness.cases.reply_files import write_files
from harness.errors import HarnessBug, SandboxError
from sandboxes.job import ExitFacts, Job, Limits, Sandbox
from sandboxes.orphans import owned_folder

_FILES: Final = "files"
_COMMAND: Final = "command.sh"
# The command is a file, so that nothing in it is taken for a mark of the sandbox's.
_START: Final = 'cd "$1" && exec /bin/sh "$2"'
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_MEMORY_BYTES: Final = 2 << 30
_SHOWN_CHARS: Final = 300

_ENDS: Final[Mapping[str, str]] = {
    "oom": "it used more than 2 GiB of memory",
    "output_limit": "it printed too much",
    "disk_limit": "it filled the disk that it was given",
}


@dataclass(frozen=True)
class Commands:
    """What runs commands."""

    sandbox: Sandbox
    python: Path
    """The interpreter that jobs find first under `python`."""

    def run(self, check: Check, files: Mapping[str, str]) -> CheckOutcome:
        """The outcome of a `command` in a folder with `files`. Raises SandboxError."""
        assert check.kind == "command" and check.text is not None and check.wall_s is not None
        with owned_folder("case") as name:
            folder = Path(name)
            write_files(files, folder / _FILES)
            (folder / _COMMAND).write_text(check.text + "\n", encoding="utf-8", errors="replace")
            process = self.sandbox.start(self._job(folder, check.wall_s))
            try:
                facts = process.wait()
            finally:
                process.close()
        if facts is None:
            raise HarnessBug("a sandbox's wait() without timeout returned before the end")
        return _outcome(facts, check.wall_s)

    def _job(self, folder: Path, wall_s: float) -> Job:
        return Job(
            role="build",
            argv=["/bin/sh", "-c", _START, "sh", f"{{scratch}}/{_FILES}", f"{{scratch}}/{_COMMAND}"],
            limits=Limits(
                wall_s=wall_s,
                cpu_s=2 * wall_s,
                memory_bytes=_MEMORY_BYTES,
                file_bytes=64 << 20,
                output_bytes=64 << 10,
                processes=128,
                scratch_bytes=256 << 20,
                scratch_files=10_000,
            ),
            inputs={_FILES: folder / _FILES, _COMMAND: folder / _COMMAND},
            environment={
                "PATH": f"{self.python.parent}:{_SYSTEM_PATH}",
                "LC_ALL": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )


def _outcome(facts: ExitFacts, wall_s: float) -> CheckOutcome:
    if facts.status == "ok":
        return CheckOutcome(passed=True)
    if facts.status == "sandbox_error":
        raise SandboxError(f"a command could not run: {facts.output.strip()[:_SHOWN_CHARS]}")
    if facts.status in ("wall_timeout", "cpu_timeout"):
        cause = f"it ran longer than {wall_s:g} s and was stopped"
    elif facts.status == "nonzero":
        cause = f"it ended with status {facts.code}"
    else:
        cause = _ENDS.get(facts.status, f"it was ended by signal {facts.signal}")
    said = " ".join(facts.output.split())
    if len(said) > _SHOWN_CHARS:
        said = f"...{said[-_SHOWN_CHARS:]}"
    return CheckOutcome(passed=False, cause=f"{cause}: {said}" if said else cause)
