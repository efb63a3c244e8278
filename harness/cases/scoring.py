"""Scores a reply to a test case.

A reply never raises; a command that no sandbox can run is `not run`, neither passed nor failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.cases.commands import Commands
from harness.cases.patterns import occurs
from harness.cases.records import Check, CheckOutcome, TestCase, Verdict
from harness.cases.reply_files import ReplyFiles, overlaid, reply_files

NO_SANDBOX = "not run: there is no sandbox for its command"
ALREADY_FAILED = "not run: another check has failed already"


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
    found = reply_files(text, [check.path for check in case.checks if check.path is not None])
    outcomes: dict[int, CheckOutcome] = {}
    for last in (False, True):
        for index, check in enumerate(case.checks):
            if (check.kind == "command") is not last:
                continue
            if not last:
                outcomes[index] = _looked_up(check, text, found)
            elif any(one.passed is False for one in outcomes.values()):
                outcomes[index] = CheckOutcome(passed=None, cause=ALREADY_FAILED)
            elif commands is None:
                outcomes[index] = CheckOutcome(passed=None, cause=NO_SANDBOX)
            else:
                outcomes[index] = commands.run(check, overlaid(case.files, found.files))
    return tuple(outcomes[index] for index in range(len(case.checks)))


def _looked_up(check: Check, text: str, found: ReplyFiles) -> CheckOutcome:
    """A check that needs the reply alone."""
    if check.path is None:
        where, read = "the reply", text
    else:
        where, read = check.path, found.files.get(check.path, "")
        if check.path not in found.files:
            if check.kind == "file_exists" and any(f.startswith(f"{check.path}/") for f in found.files):
                return CheckOutcome(passed=True)  # a folder
            reason = found.left_out.get(check.path)
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
