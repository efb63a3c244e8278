"""Writes docs/generated/security.md from a run of all attacks on all backends: `make security`.

Every cell of its table was observed in the run that wrote it, or is `not measured`.

    python -m tools.attacks.report [--check]     --check only compares the page with the expected results
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pynvml

from harness.errors import InfraError, UsageError
from sandboxes.host_job import FreeUsers
from sandboxes.job import RoleName
from sandboxes.outside import blocked_ancestor
from sandboxes.registry import open_sandbox
from tools.attacks.catalogue import FAMILIES, Attack, all_attacks, build_battery
from tools.attacks.expected import COLUMNS, HOLES, Column, differences
from tools.attacks.session import UNAVAILABLE, Report, load_report, observe
from tools.zoo.regions import carried_over

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 300.0
DOCUMENT = _ROOT / "docs" / "generated" / "security.md"
_TEXT = Path(__file__).with_name("security_text.md")
_CELLS = {"held": "held", "leaked": "**open**", "unmeasured": "not measured"}
_NOT_RUN = "not measured"
_FACTS = ("engine", "engine_runtime", "bubblewrap", "landlock", "user", "limits", "cgroups")


class Unavailable(Exception):
    """The column cannot be measured on this machine, for the reason in the message."""


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
    """In a process of an unused user id, with a copy of the code that it needs."""
    python = _passable_python()
    uid = FreeUsers().take()
    assert uid is not None
    with tempfile.TemporaryDirectory(prefix="attacks-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        skip = shutil.ignore_patterns("__pycache__", "_data")
        for part in ("harness", "sandboxes", "tools", "tests/attacks"):
            shutil.copytree(_ROOT / part, folder / part, ignore=skip)
        shutil.copy(pynvml.__file__, folder)
        shutil.copy(battery, folder / "battery")
        (folder / "own").mkdir()
        os.chown(folder / "own", uid, uid)
        subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
        result = folder / "own/result.json"
        done = subprocess.run(
            [python, "-m", "tools.attacks.session", backend, str(folder / "battery"), str(result)],
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


def write() -> int:
    """Run every column of this machine and write the page. Returns the number of unexpected results."""
    reports: dict[Column, Report | str] = {}
    surprises = 0
    with tempfile.TemporaryDirectory(prefix="battery-") as folder:
        battery = build_battery(Path(folder))
        for column in COLUMNS:
            try:
                report = measure(column, battery)
            except Unavailable as reason:
                reports[column] = str(reason)
                sys.stderr.write(f"{column}: not measured: {reason}\n")
                continue
            reports[column] = report
            found = differences(column, {one.name: one.verdict for one in report.observations})
            surprises += len(found)
            sys.stderr.write(f"{column}: {report.seconds:.0f} s, {len(found)} surprises\n")
            sys.stderr.writelines(f"  {line}\n" for line in found)
    # Keep the regions that `make zoo` has written.
    DOCUMENT.write_text(carried_over(document(reports), DOCUMENT.read_text()))
    return surprises


def document(reports: dict[Column, Report | str]) -> str:
    """The whole text."""
    run = {column: one for column, one in reports.items() if isinstance(one, Report)}
    parts = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": _machine(),
        "summary": _summary(reports),
        "holes": _holes(run),
        "table": _table(run),
    }
    text = _TEXT.read_text()
    for name, value in parts.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _machine() -> str:
    gcc = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    groups = "version 2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "version 1"
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{system}, Linux {kernel} on {platform.machine()}, {os.cpu_count()} cores, "
        f"control groups {groups}, no GPU in use, attacks compiled by gcc {gcc.strip()}"
    )


def _summary(reports: dict[Column, Report | str]) -> str:
    lines = ["| backend | held | open | seconds | what it was |", "|---|---|---|---|---|"]
    for column, one in reports.items():
        if isinstance(one, str):
            lines.append(f"| {column} | {_NOT_RUN} | | | {_cell(one)} |")
            continue
        verdicts = [seen.verdict for seen in one.observations]
        facts = ", ".join(f"{key.replace('_', ' ')}: {one.facts[key]}" for key in _FACTS if key in one.facts)
        held, leaked = verdicts.count("held"), verdicts.count("leaked")
        lines.append(f"| {column} | {held} | {leaked} | {one.seconds:.0f} | {_cell(facts)} |")
    return "\n".join(lines)


def _holes(run: dict[Column, Report]) -> str:
    """Open promises of the backends that isolate, with reasons."""
    lines = []
    promises = {attack.name: attack.promise for attack in all_attacks()}
    for column, report in run.items():
        if column.startswith("local"):
            continue
        leaked = [one.name for one in report.observations if one.verdict == "leaked"]
        lines.append(f"- **{column}**: {'these promises do not hold' if leaked else 'nothing'}")
        for name in leaked:
            hole = HOLES[column].get(name)
            lines.append(f"  - {promises[name]} (`{name}`: {hole.reason if hole else 'not expected'})")
    return "\n".join(lines)


def _table(run: dict[Column, Report]) -> str:
    seen = {
        column: {one.name: _CELLS[one.verdict] for one in report.observations}
        for column, report in run.items()
    }
    head = "| attack | what is promised | " + " | ".join(COLUMNS) + " |"
    lines = [head, "|---|---|" + "---|" * len(COLUMNS)]
    attacks = all_attacks()
    for family in FAMILIES:
        lines.append(f"| **{family}** | |" + " |" * len(COLUMNS))
        lines += [_row(attack, seen) for attack in attacks if attack.family == family]
    return "\n".join(lines)


def _row(attack: Attack, seen: dict[Column, dict[str, str]]) -> str:
    cells = [seen.get(column, {}).get(attack.name, _NOT_RUN) for column in COLUMNS]
    return f"| `{attack.name}` | {_cell(attack.promise)} | " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def disagreements(text: str) -> list[str]:
    """Where the page's table differs from the expected results, or lacks an attack."""
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            name, _, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
            rows[name.strip("`")] = cells
    verdicts = {shown: verdict for verdict, shown in _CELLS.items()}
    attacks = {attack.name for attack in all_attacks()}
    found = [f"{name}: in only one of table and suite" for name in sorted(attacks ^ set(rows))]
    for index, column in enumerate(COLUMNS):
        of_column = {name: verdicts.get(cells[index], "unknown cell") for name, cells in rows.items()}
        found += [f"{column}: {line}" for line in differences(column, of_column)]
        found += [f"{column}: {name}: {cell}" for name, cell in of_column.items() if cell == "unknown cell"]
    return found


def main() -> int:
    """0 where everything was as expected, else 1."""
    parser = argparse.ArgumentParser(
        description="Write docs/generated/security.md from a run of the attack suite."
    )
    parser.add_argument(
        "--check", action="store_true", help="only compare the document with what is expected"
    )
    if parser.parse_args().check:
        found = disagreements(DOCUMENT.read_text())
        sys.stderr.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    return 1 if write() else 0


if __name__ == "__main__":
    sys.exit(main())
