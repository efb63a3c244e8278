"""Reads one of our own run folders as a trace: prompts, replies and what the grade said of them.

The folder is only read; a line of trials.jsonl that is no JSON is counted as torn; a file that an
interrupted run lacks is left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from harness.records import TrialKey
from harness.teaching.traces.collector import Collector
from harness.teaching.traces.event import Role

TRIALS: Final = "trials.jsonl"
_LOG_LIMIT: Final = 64 << 10
"""Of build.log the end: a failed build's findings stand in the record as well."""
_PASSED: Final = ("correct", "not_measured")


def read_run(out: Collector, folder: Path, without: Collection[str] = ()) -> int:
    """Add the events of the run in `folder`, but for the tasks `without`; returns the characters read."""
    characters = 0
    prompted: set[str] = set()
    with (folder / TRIALS).open(encoding="utf-8", errors="replace", newline="\n") as source:
        for number, line in enumerate(source, 1):
            characters += len(line)
            if not line.strip():
                continue
            try:
                trial = json.loads(line)
                key = TrialKey.model_validate(trial["key"])
                turns = list(trial["turns"])
                files = folder / key.folder
            except (ValueError, RecursionError, KeyError, TypeError):
                out.torn += 1
                continue
            if key.task in without:
                continue
            if key.task not in prompted:
                prompted.add(key.task)
                characters += _prompt(out, files / "prompt.json")
            characters += _turns(
                out, files, key.folder.removeprefix("trials/"), turns, f"{TRIALS} line {number}"
            )
    return characters


def _turns(out: Collector, files: Path, name: str, turns: list[Any], place: str) -> int:
    """Replies and grades of one trial; returns how many characters of its log were read."""
    read = 0
    for index, turn in enumerate(turns):
        where = f"{place}, turns[{index}]"
        reply = turn.get("reply") if isinstance(turn, dict) else None
        if not isinstance(reply, dict):
            continue
        out.say("assistant", reply.get("text"), f"{where}.reply")
        grade = turn.get("grade")
        if isinstance(grade, dict):
            log = _tail(files / "build.log") if index == len(turns) - 1 else ""
            read += len(log)
            call = f"{name}/{index}"
            out.called("grade", {"command": f"grade {name}"}, f"{where}.grade", call=call)
            failed = grade.get("verdict") not in _PASSED
            out.returned(_words(grade, log), f"{where}.grade", call=call, is_error=failed)
    return read


def _prompt(out: Collector, path: Path) -> int:
    """The prompt of a task's first trial; 0 when it was not kept."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        messages = json.loads(text)["messages"]
        for index, message in enumerate(messages):
            role: Role = "system" if message["role"] == "system" else "user"
            out.say(role, message["content"], f"{path.name}, messages[{index}]")
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return len(text)


def _tail(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    left_out = len(data) - _LOG_LIMIT
    text = data[-_LOG_LIMIT:].decode("utf-8", "replace")
    return f"[{left_out:,} bytes of the log left out]\n{text}" if left_out > 0 else text


def _words(grade: Mapping[str, Any], log: str) -> str:
    """Verdict, finding, diagnostics, speedup where there is one, and the build log of a failed build."""
    finding = grade.get("finding")
    message = str(finding.get("message", "")) if isinstance(finding, dict) else ""
    cause = str(finding.get("cause", "")) if isinstance(finding, dict) else ""
    verdict = str(grade.get("verdict"))
    lines = [f"verdict: {verdict}" + (f" ({cause}): {message}" if verdict not in _PASSED else "")]
    build = grade.get("build")
    if isinstance(build, dict) and not build.get("ok", True):
        found = [d for d in build.get("diagnostics") or () if isinstance(d, dict)]
        lines += [
            f"{d.get('file')}:{d.get('line')}: error: {d.get('message')}" for d in found if d.get("file")
        ]
        lines += [log] if log.strip() else []
    timing = grade.get("timing")
    ratio = timing.get("speedup") if isinstance(timing, dict) else None
    speedup = ratio.get("value") if isinstance(ratio, dict) else None
    if isinstance(speedup, (int, float)):
        lines.append(f"speedup over the reference: {speedup:.3f}x")
    return "\n".join(lines)
