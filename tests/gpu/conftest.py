"""What only a GPU can answer: items in order of importance, within a budget, resumed from `results/`.

Without a GPU (and beside other tests, under xdist) the items run on stand-ins, and nothing is written: their
figures are no measurements.
"""

from __future__ import annotations

import faulthandler
import functools
import hashlib
import json
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import platformdirs
import pytest

pytest.register_assert_rewrite("tests.fakes.judge_kernels")

import torch

import harness
from harness.builder.toolchain import find_cuda
from harness.errors import LiftbenchError
from sandboxes.gpu import GpuSlot, slot_named
from sandboxes.nvml import Nvml, open_nvml
from sandboxes.orphans import owned_folder
from tests.gpu.bench import Bench
from tests.gpu.stand_in import StandIn
from tools.gpu_results import Entry, Fact, Ledger, Status

FAST_S = 12.0
"""Items with a longer estimate are slow tests on the stand-ins."""
_ALL_S = 7 * 24 * 3600.0
_NAMED = 40
_STUCK, _MORE_S = 3.0, 60.0
"""An item may take so many times its estimate and so much more, but no more beyond the budget than that."""
_TRACE_CHARACTERS = 6000
_FACTS = pytest.StashKey[dict[str, Fact]]()
_ITEMS = pytest.StashKey["GpuItems"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `make gpu-check`. `-k` names items: those that it selects run again."""
    group = parser.getgroup("gpu")
    group.addoption("--budget-s", type=float, default=_ALL_S, help="begin nothing that would not fit")
    group.addoption("--results", type=Path, help="folder of the record; without it nothing is written")
    group.addoption("--gpu", default="0", help="UUID or index of the GPU")


def pytest_configure(config: pytest.Config) -> None:
    """Looks for a GPU; without one a recorded session ends here."""
    wanted = config.getoption("results", None)
    try:
        items = GpuItems.open(config)
    except LiftbenchError as error:
        raise pytest.UsageError(str(error)) from error
    if wanted is not None and items.slot is None:
        owed = "pytest tests/gpu tries the items on stand-ins"
        pytest.exit(f"not measured: no NVIDIA driver on this machine (NVML finds none); {owed}", 0)
    config.stash[_ITEMS] = items
    config.pluginmanager.register(items, "gpu-items")
    if wanted is not None and items.ledger is not None:
        # What is killed by SIGTERM still writes its timings.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        folder = wanted / "timings"
        folder.mkdir(parents=True, exist_ok=True)
        stem = items.ledger.path.stem.rpartition("-20")[0]
        items.timings = folder / f"{stem}-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
        config.option.benchmark_json = items.timings
        items.stacks = items.timings.with_suffix(".stacks.txt").open("w")


@dataclass(frozen=True)
class Check:
    """What the mark of an item says; its name is TEST/PARAMETER."""

    name: str
    proves: str
    estimate_s: float
    rank: int
    essential: bool
    """Nothing else can be measured where it fails."""

    @classmethod
    def of(cls, item: pytest.Function, mark: pytest.Mark) -> Check:
        """From `@pytest.mark.gpu(estimate_s=, rank=, essential=)`; a parameter may replace the values."""
        values = {**mark.kwargs}
        for other in item.iter_markers("gpu"):  # the closest first
            values = {**other.kwargs, **values}
        callspec = getattr(item, "callspec", None)
        name = item.originalname.removeprefix("test_") + (f"/{callspec.id}" if callspec else "")
        proves = (item.function.__doc__ or "").strip().partition("\n\n")[0]
        essential = values.get("essential", False)
        return cls(name, " ".join(proves.split()), values["estimate_s"], values["rank"], essential)


class GpuItems:
    """The plugin: order, budget, resuming, and the record."""

    def __init__(
        self,
        slot: GpuSlot | None = None,
        ledger: Ledger | None = None,
        budget_s: float = _ALL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`slot`: the GPU, None where the items run on stand-ins. `ledger`: where results are written."""
        self.slot, self.ledger = slot, ledger
        self.timings: Path | None = None
        """pytest-benchmark's file, written at the end; beside it each item's own, when it is over."""
        self.stacks: TextIO | None = None
        """Where those of an item go that takes too long."""
        self._budget_s, self._clock, self._began = budget_s, clock, clock()
        self._checks: dict[str, Check] = {}
        self._seen: dict[str, tuple[Status, str | None, float, str | None]] = {}
        self._skipped: set[str] = set()

    @classmethod
    def open(cls, config: pytest.Config) -> GpuItems:
        """With the GPU of this machine and its record. Raises LiftbenchError where either is broken."""
        nvml = None if hasattr(config, "workerinput") else open_nvml()
        if nvml is None:
            return cls()
        with nvml:
            slot = slot_named(config.getoption("gpu", "0"), nvml.gpus())
            results, ledger = config.getoption("results", None), None
            if results is not None:
                ledger = _ledger(results, slot, nvml)
        return cls(slot, ledger, config.getoption("budget_s", _ALL_S))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """In order of importance, after all other tests, without those that are finished."""
        found: dict[pytest.Item, Check] = {}
        for item in items:
            mark = item.get_closest_marker("gpu")
            if isinstance(item, pytest.Function) and mark is not None:
                found[item] = Check.of(item, mark)
                item.extra_keyword_matches.add(found[item].name)
                if self.slot is None and found[item].estimate_s > FAST_S:
                    item.add_marker(pytest.mark.slow)
        by_rank = sorted(found, key=lambda item: (self._gives_way(found[item]), found[item].rank))
        self._checks = {item.nodeid: found[item] for item in by_rank}
        named = bool(config.getoption("keyword", ""))
        finished = [item for item in found if not named and self._finished(found[item])]
        config.hook.pytest_deselected(items=finished)
        wanted = [item for item in by_rank if item not in finished]
        items[:] = [*(item for item in items if item not in found), *wanted]

    def _entry(self, check: Check) -> Entry | None:
        return None if self.ledger is None else self.ledger.entry(check.name)

    def _finished(self, check: Check) -> bool:
        entry = self._entry(check)
        return (
            entry is not None and entry.finished(code()) and (not check.essential or entry.status == "passed")
        )

    def _gives_way(self, check: Check) -> bool:
        """To all others, where a session ended in it."""
        entry = self._entry(check)
        return entry is not None and entry.status == "unfinished" and not check.essential

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skips what does not fit into the rest of the budget; a smaller item may. What begins is recorded,
        and ends the session where it takes far too long: all threads' stacks are then beside the timings."""
        check = self._checks.get(item.nodeid)
        left_s = self._budget_s - (self._clock() - self._began)
        if check is not None and check.estimate_s > left_s:
            self._skipped.add(item.nodeid)
            pytest.skip(f"owed: needs about {check.estimate_s:.0f} s, and {max(0, left_s):.0f} s are left")
        if check is not None and self.stacks is not None:
            self._add(check, "unfinished", {}, "the session ended in it", 0.0, None)
            within_s = min(_STUCK * check.estimate_s, left_s) + _MORE_S
            faulthandler.dump_traceback_later(within_s, exit=True, file=self.stacks)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Keeps the item's worst outcome, and records it when it is over."""
        report: Any = yield
        check = self._checks.get(item.nodeid)
        if check is None or item.nodeid in self._skipped:
            return report
        status, error, wall_s, trace = self._seen.get(item.nodeid, ("passed", None, 0.0, None))
        if call.excinfo is not None and status == "passed":
            raised = call.excinfo.value
            plain = isinstance(raised, (pytest.skip.Exception, pytest.fail.Exception))
            error = str(raised) if plain else f"{type(raised).__name__}: {raised}"
            status = "not_here" if report.skipped else "failed"
            trace = report.longreprtext[-_TRACE_CHARACTERS:] if report.failed else None
        self._seen[item.nodeid] = status, error, wall_s + call.duration, trace
        if call.when == "teardown":
            self._record(item, check)
            if status == "failed" and self.slot is not None:
                if check.essential:
                    item.session.shouldstop = f"{check.name} failed, so nothing else can be measured: {error}"
                elif lost := _lost_context():
                    item.session.shouldstop = f"the judge's CUDA context is lost, run it again: {lost}"
        return report

    def _record(self, item: pytest.Item, check: Check) -> None:
        status, error, wall_s, trace = self._seen[item.nodeid]
        facts = {} if status == "not_here" else item.stash.get(_FACTS, {})
        item.user_properties += facts.items()
        if self.timings is not None:
            faulthandler.cancel_dump_traceback_later()
            benchmark = getattr(item, "funcargs", {}).get("benchmark")
            if benchmark is not None:
                stats = benchmark.stats
                seconds = [] if stats is None else stats.stats.data
                told = {"name": check.name, "data": seconds, "extra_info": benchmark.extra_info}
                with self.timings.with_suffix(".jsonl").open("a", encoding="utf-8") as lines:
                    print(json.dumps(told), file=lines)
            self._add(check, status, facts, error, wall_s, trace)

    def _add(
        self,
        check: Check,
        status: Status,
        facts: dict[str, Fact],
        error: str | None,
        wall_s: float,
        trace: str | None,
    ) -> None:
        assert self.ledger is not None and self.slot is not None
        self.ledger.add(
            Entry(
                name=check.name,
                proves=check.proves,
                status=status,
                facts=facts,
                error=error,
                wall_s=round(wall_s, 3),
                measured_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
                gpu_uuid=self.slot.uuid,
                code=code(),
                trace=trace,
            )
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails for what failed in an earlier session too; nothing left to do is no failure."""
        if self.ledger is not None and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = int(bool(self._named("failed", "unfinished")))

    def pytest_unconfigure(self) -> None:
        if self.stacks is not None:
            self.stacks.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What is owed, and what failed, now or before."""
        if self.ledger is None:
            return
        terminalreporter.section(f"GPU: {self.ledger.path}")
        owed = self._named(None)
        for word, names in (("failed", self._named("failed", "unfinished")), ("owed, run it again", owed)):
            if names:
                more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                terminalreporter.line(f"{word}: {', '.join(names[:_NAMED])}{more}")

    def _named(self, *statuses: Status | None) -> list[str]:
        """Items whose recorded result is one of these; None: that have none."""
        found = {check.name: self._entry(check) for check in self._checks.values()}
        return [name for name, one in found.items() if (None if one is None else one.status) in statuses]


@functools.cache
def code() -> str:
    """What the items run, and with which torch and driver."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for folder in ("harness", "sandboxes", "tasks", "kernels_ref", "tests/gpu", "tests/fakes"):
        for path in sorted((root / folder).rglob("*.*")):
            if path.is_file() and path.suffix not in (".pyc", ".md") and path.name != "ADMISSION.json":
                digest.update(path.read_bytes())
    nvml = open_nvml()
    with nullcontext() if nvml is None else nvml:
        driver = "none" if nvml is None else nvml.driver_version()
    return f"{digest.hexdigest()[:16]}, torch {metadata.version('torch')}, driver {driver}"


def _lost_context() -> str | None:
    """What CUDA says in this process from now on; None where it still works."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return None


def _ledger(results: Path, slot: GpuSlot, nvml: Nvml) -> Ledger:
    cuda = find_cuda(os.environ)
    software = {
        "driver": nvml.driver_version(),
        "torch": metadata.version("torch"),
        "nvcc": cuda.version if cuda else "absent",
        "python": platform.python_version(),
    }
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return Ledger.open(results, slot.gpu.name, slot.uuid, day, harness.__version__, software)


@pytest.fixture
def facts(request: pytest.FixtureRequest) -> dict[str, Fact]:
    """What an item saw, filled as it goes on; recorded even if it fails."""
    found: dict[str, Fact] = {}
    request.node.stash[_FACTS] = found
    return found


@pytest.fixture(scope="session")
def probe_folder() -> Iterator[Path]:
    """The probe is compiled once."""
    with owned_folder("gpu-check") as folder:
        yield Path(folder)


@pytest.fixture
def gpu(
    request: pytest.FixtureRequest,
    facts: dict[str, Fact],
    tmp_path_factory: pytest.TempPathFactory,
    probe_folder: Path,
) -> Iterator[Bench]:
    """The GPU of this machine, or stand-ins, which say so in the facts."""
    slot = request.config.stash[_ITEMS].slot
    with ExitStack() as held:
        if slot is None:
            facts["emulated"] = "not a measurement"
            if "benchmark" in request.fixturenames:
                request.getfixturevalue("benchmark").group = "emulated, not a measurement"
            base = tmp_path_factory.getbasetemp()
            shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            folder = Path(held.enter_context(owned_folder("gpu-check")))
            yield held.enter_context(StandIn.opened(folder, shared / "gpu-stand-in"))
        else:
            nvml = open_nvml()
            assert nvml is not None
            held.enter_context(nvml)
            yield Bench(nvml, slot, probe_folder, Path(platformdirs.user_cache_dir("liftbench")))
