"""A pytest plugin that resumes: every check is asked once per GPU and day, within a budget of time.

Results are kept in one JSON file per GPU model and day, with a Markdown table beside it. Both are replaced
after every check, so whatever ends a session keeps all that was finished before.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import platformdirs
import pytest
from _pytest.runner import runtestprotocol
from pydantic import ValidationError

import harness
from harness.builder.toolchain import find_cuda
from harness.errors import UsageError
from harness.files import write_atomically
from harness.records.reasons import reason_of
from sandboxes.gpu import GpuSlot
from sandboxes.nvml import Nvml
from sandboxes.orphans import owned_folder
from sandboxes.registry import open_sandbox
from tools.gpu_check.bench import Bench
from tools.gpu_check.record import Contents, Entry, Fact, Status

_WORDS: dict[Status, str] = {"passed": "passed", "failed": "FAILED", "not_here": "not on this machine"}
NOT_YET = "not measured yet"
_ERROR = pytest.StashKey[str]()
_FACTS = pytest.StashKey[dict[str, Fact]]()


def gpu(
    name: str, proves: str, *, estimate_s: float | Callable[..., float], rank: int
) -> pytest.MarkDecorator:
    """Marks a check. `name` and `proves` are formatted with its parameters; `proves` says what is known
    when it passes. It is not begun with less than `estimate_s` left. Lower ranks run first."""
    return pytest.mark.gpu(name=name, proves=proves, estimate_s=estimate_s, rank=rank)


class Check:
    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        mark = item.get_closest_marker("gpu")
        if mark is None:
            raise UsageError(f"{item.nodeid} has no mark `gpu`")
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        estimate = mark.kwargs["estimate_s"]
        self.name: str = mark.kwargs["name"].format(**parameters)
        self.proves: str = mark.kwargs["proves"].format(**parameters)
        self.estimate_s: float = estimate(**parameters) if callable(estimate) else estimate
        self.rank: int = mark.kwargs["rank"]


class Ledger:
    """The record of one GPU model and day."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self.path = path
        self._contents = contents

    @classmethod
    def open(
        cls,
        folder: Path,
        gpu: str,
        uuid: str,
        day: str,
        version: str,
        software: Mapping[str, str] | None = None,
    ) -> Ledger:
        """Continues the file of that GPU and day where there is one. Raises UsageError if it is broken."""
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}-{day}.json"
        fresh = Contents(liftbench=version, gpu=gpu, gpu_uuid=uuid, software=dict(software or {}))
        if not path.exists():
            return cls(path, fresh)
        try:
            found = Contents.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise UsageError(
                f"{path} cannot be continued: {reason_of(error)}; move it away to begin anew"
            ) from error
        return cls(path, found.model_copy(update={"software": {**found.software, **fresh.software}}))

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self._contents.entries if entry.name == name), None)

    def add(self, entry: Entry, checks: Sequence[Check]) -> None:
        """Record an answer, in place of an older one, and write both files."""
        others = tuple(e for e in self._contents.entries if e.name != entry.name)
        self._contents = self._contents.model_copy(update={"entries": (*others, entry)})
        write_atomically(self.path, self._contents.model_dump_json(indent=1) + "\n")
        self.write_table(checks)

    def write_table(self, checks: Sequence[Check]) -> None:
        """Every check, with those that were not measured yet."""
        head = self._contents
        words = [
            NOT_YET if (found := self.entry(one.name)) is None else _WORDS[found.status] for one in checks
        ]
        count = Counter(words)
        reached = ", ".join(f"{count[word]} {word}" for word in (*_WORDS.values(), NOT_YET) if count[word])
        made = f"liftbench {head.liftbench}. Made by `make gpu-check` from {self.path.name}."
        lines = [
            f"# {head.gpu}: what was measured",
            f"GPU {head.gpu_uuid}, {made}",
            ", ".join(f"{name} {_cell(value)}" for name, value in head.software.items()) or "-",
            f"Reached: {reached}.",
            "| item | what it proves | result | seen | at (UTC) |\n|---|---|---|---|---|",
        ]
        rows = [self._row(one) for one in checks]
        write_atomically(self.path.with_suffix(".md"), "\n\n".join(lines) + "\n" + "\n".join(rows) + "\n")

    def _row(self, check: Check) -> str:
        entry = self.entry(check.name)
        cells = [check.name, check.proves, NOT_YET, "", ""]
        if entry is not None:
            seen = [f"{name} {_shown(value)}" for name, value in entry.facts.items()]
            seen += [entry.error] if entry.error else []
            cells = [check.name, check.proves, _WORDS[entry.status], "; ".join(seen), entry.measured_at]
        return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _shown(value: Fact) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Errors quote what a sandbox printed: nothing of it may look like table or markup."""
    clean = re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+", " ", text)
    return re.sub(r"([|<>`\\\[\]])", r"\\\1", clean)[:600]


def say(line: str) -> None:
    """Print a line in which nothing that a sandbox printed can steer the terminal."""
    sys.stdout.write("".join(c if c.isprintable() else " " for c in line) + "\n")
    sys.stdout.flush()


class GpuCheck:
    def __init__(
        self,
        out: Path,
        budget_s: float,
        again: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out, self._budget_s, self._again, self._clock = out, budget_s, set(again), clock
        self._began = clock()
        self._checks: dict[str, Check] = {}
        self._ledger: Ledger | None = None
        self._nvml: Nvml | None = None
        self._slot: GpuSlot | None = None
        self._usage = ""
        self.list_only = False

    def open(self, nvml: Nvml, slot: GpuSlot) -> None:
        """Continue the record of that GPU. Raises UsageError when it is broken."""
        self._nvml, self._slot = nvml, slot
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        cuda = find_cuda(os.environ)
        software = {
            "driver": nvml.driver_version(),
            "torch": metadata.version("torch"),
            "nvcc": cuda.version if cuda else "absent",
            "python": platform.python_version(),
        }
        self._ledger = Ledger.open(self._out, slot.gpu.name, slot.uuid, day, harness.__version__, software)
        say(f"gpu-check: {slot.gpu.name} ({slot.uuid}), into {self._ledger.path}")

    @property
    def names(self) -> list[str]:
        return [check.name for check in self._checks.values()]

    def exit_code(self, pytest_code: int) -> int:
        """After the session; says what is owed and what failed."""
        if self._usage:
            say(f"gpu-check: {self._usage}")
            return 2
        assert self._ledger is not None
        entries = {name: self._ledger.entry(name) for name in self.names}
        owed = [name for name, entry in entries.items() if entry is None]
        failed = [name for name, entry in entries.items() if entry and entry.status == "failed"]
        if owed:
            say(f"owed, run it again: {', '.join(owed)}")
        if failed:
            say(f"failed: {', '.join(failed)}")
            return 3
        broken = pytest_code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)
        return 1 if broken or not entries else 0

    @pytest.fixture(scope="session")
    def bench(self) -> Iterator[Bench]:
        assert self._nvml is not None and self._slot is not None
        with owned_folder("gpu-check") as folder:
            cache = Path(platformdirs.user_cache_dir("liftbench"))
            yield Bench(self._nvml, self._slot, open_sandbox, Path(folder), cache)

    @pytest.fixture
    def facts(self, request: pytest.FixtureRequest) -> dict[str, Fact]:
        """What a check saw, filled as it goes on; recorded even if it fails."""
        found: dict[str, Fact] = {}
        request.node.stash[_FACTS] = found
        return found

    def pytest_configure(self, config: pytest.Config) -> None:
        """The mark, where no ini file names it."""
        config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")

    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """In order of importance, without those that are finished."""
        checks = sorted((Check(item) for item in items), key=lambda one: one.rank)
        self._checks = {one.item.nodeid: one for one in checks}
        unknown = sorted(self._again - set(self.names))
        if unknown:
            self._usage = f"no check is called {', '.join(unknown)}; there are: {', '.join(self.names)}"
        if self._usage or self.list_only or self._ledger is None:
            items.clear()
            return
        self._ledger.write_table(checks)
        items[:] = [one.item for one in checks if not self._finished(one)]

    def _finished(self, check: Check) -> bool:
        entry = None if self._ledger is None else self._ledger.entry(check.name)
        if entry is None or not entry.finished or check.name in self._again:
            return False
        say(f"{check.name}: {entry.status} before, at {entry.measured_at}")
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run one check and record it; stops where the budget does not suffice."""
        check = self._checks[item.nodeid]
        left_s = self._budget_s - (self._clock() - self._began)
        if check.estimate_s > left_s:
            times = f"needs about {check.estimate_s:.0f} s and {left_s:.0f} s are left"
            say(f"{check.name}: {times}: stopping here")
            item.session.shouldstop = "no time left"
            return True
        began = self._clock()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        status: Status = "passed"
        if any(report.skipped for report in reports):
            status = "not_here"
        if any(report.failed for report in reports):
            status = "failed"
        entry = Entry(
            name=check.name,
            proves=check.proves,
            status=status,
            facts=item.stash.get(_FACTS, {}) if status != "not_here" else {},
            error=item.stash.get(_ERROR, None) if status != "passed" else None,
            wall_s=round(self._clock() - began, 3),
            measured_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        )
        assert self._ledger is not None
        self._ledger.add(entry, list(self._checks.values()))
        more = f": {entry.error}" if entry.error else ""
        say(f"{check.name}: {status} in {entry.wall_s:.1f} s{more}")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Keep the reason of a failure or skip."""
        report = yield
        if call.excinfo is not None and _ERROR not in item.stash:
            error = call.excinfo.value
            plain = isinstance(error, (pytest.skip.Exception, pytest.fail.Exception))
            item.stash[_ERROR] = str(error) if plain else f"{type(error).__name__}: {error}"
        return report
