"""Scores a reply to a test case, and tells whether passing that case proves anything.

A reply never raises, whatever it holds. A command runs only inside a sandbox, on a copy of the files; without
a sandbox it is `not run`, neither passed nor failed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from harness.builder.run_ninja import run_job
from harness.cases.schema import Check, CheckOutcome, TestCase, Verdict, Worth, unfit
from harness.errors import SandboxError
from harness.files import write_files
from harness.student.answer import MAX_BYTES, MAX_FILES, MAX_REPLY_CHARS
from harness.student.fences import ANY_PATH, FileNames, fenced, fenced_blocks
from sandboxes.job import ExitFacts, Job, Limits, Sandbox
from sandboxes.orphans import owned_folder

NO_SANDBOX = "not run: there is no sandbox for its command"
ALREADY_FAILED = "not run: another check has failed already"
NOTHING: Final = "nothing is checked"
REFUSAL: Final = (
    "I'm sorry, but I cannot help with that request. Please let me know if I can do anything else."
)

_FILES: Final = "files"
_COMMAND: Final = "command.sh"
# The command is a file: nothing in it is read as a placeholder of the sandbox.
_START: Final = 'cd "$1" && exec /bin/sh "$2"'
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_MEMORY_BYTES: Final = 2 << 30
_SHOWN_CHARS: Final = 300
_SEARCH_WALL_S: Final = 5.0
_SEARCH: Final = (
    "import json, re, sys, warnings\n"
    "warnings.simplefilter('ignore')\n"
    "pattern, text = json.load(sys.stdin)\n"
    "print(re.search(pattern, text, re.MULTILINE) is not None)\n"
)
_ENDS: Final[Mapping[str, str]] = {
    "oom": "it used more than 2 GiB of memory",
    "output_limit": "it printed too much",
    "disk_limit": "it filled the disk that it was given",
}


def verdict(outcomes: Sequence[CheckOutcome]) -> Verdict:
    """`passed` when every check did; `not_run` when that is not known, or there is none."""
    if any(one.passed is False for one in outcomes):
        return "failed"
    return "passed" if outcomes and all(one.passed for one in outcomes) else "not_run"


def score(case: TestCase, text: str, commands: Commands | None) -> tuple[CheckOutcome, ...]:
    """One outcome for each check. Raises SandboxError when a sandbox fails, which is not the reply's fault.

    Commands run last, in a folder with the case's files and, over them, the reply's; and only while
    nothing has failed.
    """
    files, left_out = reply_files(text, [check.path for check in case.checks if check.path is not None])
    checks = list(enumerate(case.checks))
    outcomes = {n: _looked_up(check, text, files, left_out) for n, check in checks if check.kind != "command"}
    for number, check in checks:
        if check.kind != "command":
            continue
        if any(one.passed is False for one in outcomes.values()):
            outcomes[number] = CheckOutcome(passed=None, cause=ALREADY_FAILED)
        elif commands is None:
            outcomes[number] = CheckOutcome(passed=None, cause=NO_SANDBOX)
        else:
            outcomes[number] = commands.run(check, overlaid(case.files, files))
    return tuple(outcomes[number] for number, _ in checks)


def _looked_up(
    check: Check, text: str, files: Mapping[str, str], left_out: Mapping[str, str]
) -> CheckOutcome:
    """A check that needs only the reply."""
    where, read = "the reply", text
    if check.path is not None:
        where, read = check.path, files.get(check.path, "")
        if check.path not in files:
            if check.kind == "file_exists" and any(file.startswith(f"{check.path}/") for file in files):
                return CheckOutcome(passed=True)  # a folder
            reason = left_out.get(check.path)
            return _failed(f"the reply gives no file {check.path}{f': it {reason}' if reason else ''}")
    if check.kind == "file_exists":
        return CheckOutcome(passed=True)
    assert check.text is not None
    if check.kind == "regex":
        known = occurs(check.text, read)
        if isinstance(known, str):
            return _failed(known)
        return CheckOutcome(passed=True) if known else _failed(f"{where} does not match {check.text!r}")
    # upskill compares without regard to case.
    if check.text.lower() in read.lower():
        return CheckOutcome(passed=True)
    return _failed(f"{where} does not contain {check.text!r}")


def _failed(cause: str) -> CheckOutcome:
    return CheckOutcome(passed=False, cause=cause)


def occurs(pattern: str, text: str, wall_s: float = _SEARCH_WALL_S) -> bool | str:
    """Whether a regular expression matches anywhere, `^` and `$` at lines; else why that is not known.

    Python cannot interrupt a search such as `(a+)+$`, so it runs in a process of its own.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SEARCH],
            input=json.dumps([pattern, text]),
            capture_output=True,
            text=True,
            timeout=wall_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the search took longer than {wall_s:g} s"
    if done.returncode != 0:
        return f"the search ended with status {done.returncode}"
    return done.stdout.strip() == "True"


@dataclass(frozen=True)
class Commands:
    """Runs the commands of checks."""

    sandbox: Sandbox
    python: Path

    def run(self, check: Check, files: Mapping[str, str]) -> CheckOutcome:
        """The outcome of a `command` in a folder with `files`. Raises SandboxError."""
        assert check.kind == "command" and check.text is not None and check.wall_s is not None
        with owned_folder("case") as name:
            folder = Path(name)
            write_files(files, folder / _FILES)
            (folder / _COMMAND).write_text(check.text + "\n", encoding="utf-8", errors="replace")
            limits = Limits(
                check.wall_s,
                2 * check.wall_s,
                _MEMORY_BYTES,
                output_bytes=64 << 10,
                scratch_bytes=256 << 20,
            )
            job = Job(
                role="build",
                argv=["/bin/sh", "-c", _START, "sh", f"{{scratch}}/{_FILES}", f"{{scratch}}/{_COMMAND}"],
                limits=limits,
                inputs={_FILES: folder / _FILES, _COMMAND: folder / _COMMAND},
                environment={
                    "PATH": f"{self.python.parent}:{_SYSTEM_PATH}",
                    "LC_ALL": "C.UTF-8",
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
            )
            facts = run_job(self.sandbox, job, [], folder / "out").facts
        return _outcome(facts, check.wall_s)


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
    output = " ".join(facts.output.split())
    if len(output) > _SHOWN_CHARS:
        output = f"...{output[-_SHOWN_CHARS:]}"
    return _failed(f"{cause}: {output}" if output else cause)


def case_text(case: TestCase) -> str:
    """The prompt and the files that go with it, each as a fenced block that names it."""
    return case.prompt + "".join(f"\n\n{fenced(text, path)}" for path, text in case.files.items())


def worth_of(case: TestCase, commands: Commands | None) -> Worth:
    """Whether passing the case proves anything: not if it checks nothing, or a trivial answer passes it.

    Raises SandboxError.
    """
    if not case.checks:
        return Worth(case=case.id, worth="none", why=f"worthless: {NOTHING}")
    unknown = False
    for name, text in (
        ("an echo of the prompt", case.prompt),
        ("the empty answer", ""),
        ("an echo of the prompt and its files", case_text(case)),
        ("a refusal", REFUSAL),
    ):
        found = verdict(score(case, text, commands))
        if found == "passed":
            return Worth(case=case.id, worth="none", passed_by=name, why=f"worthless: {name} passes it")
        unknown = unknown or found == "not_run"
    if unknown:
        return Worth(case=case.id, worth="unknown", why="not known: its command was not run")
    return Worth(case=case.id, worth="some", why="no trivial answer passes it")


def sentence(worths: Sequence[Worth]) -> str:
    """How many cases prove nothing, and why, in one line."""
    worthless = [one for one in worths if one.worth == "none"]
    if not worthless:
        return f"0 of {len(worths)} cases prove nothing: no trivial answer passes one"
    reasons = Counter(one.passed_by for one in worthless)
    counts = [f"{name} passes {count}" for name, count in reasons.items() if name is not None]
    if reasons[None]:
        counts.append(f"{NOTHING} in {reasons[None]}")
    return f"{len(worthless)} of {len(worths)} cases prove nothing: {', '.join(counts)}"


def reply_files(text: str, wanted: Iterable[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """The files of a reply by path, and why others are left out.

    `wanted` are paths that count even without a suffix (`my notes`). A later block with the same path
    replaces an earlier one.
    """
    known = sorted({re.escape(path) for path in wanted}, key=len, reverse=True)
    names = FileNames("|".join([*known, ANY_PATH]), quoted=True)
    files: dict[str, str] = {}
    left_out: dict[str, str] = {}
    size = 0
    for block in fenced_blocks(text[:MAX_REPLY_CHARS]):
        named = names.find(block)
        if named is None:
            continue
        path, contents = named
        tidy = path if "\\" in path else PurePosixPath(path).as_posix()
        size += len(contents.encode(errors="replace"))
        reason = unfit(tidy, files)
        if reason is None and (len(files) >= MAX_FILES and tidy not in files):
            reason = f"is beyond the first {MAX_FILES} files"
        if reason is None and size > MAX_BYTES:
            reason = f"is beyond the first {MAX_BYTES} bytes"
        if reason is None:
            files[tidy] = contents
        else:
            left_out[tidy] = reason
    return files, left_out


def overlaid(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Both sets of files; where two conflict, also as file and folder of one name, that of `above`."""
    kept = {path: text for path, text in below.items() if path in above or unfit(path, above) is None}
    return {**kept, **above}
