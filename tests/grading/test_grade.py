"""One project on one task: which stage ends a grade, and what is never graded."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.builder.compiler_output import TREE
from harness.builder.toolchain import Toolchain
from harness.device.machine import machine_facts
from harness.errors import SandboxError, UsageError
from harness.grading.grade import REPEATED, Grader
from harness.grading.workers import GradeSettings
from harness.outcome import Cause, Stage, Verdict
from harness.records import Finding, Grade, MachineFacts
from harness.records.grade import KNOWN_SEED
from harness.suite.catalogue import LoadedTask
from sandboxes.job import ExitFacts, Job, Process
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes import projects
from tests.fakes.libraries import shared_library
from tests.fakes.overlays import throw_away_task, zoo_project
from tests.fakes.sandbox import FakeSandbox, NothingAhead, exit_facts
from tests.fakes.trials import MACHINE
from tests.fakes.worker import HonestWorker, ThreadSandbox, send

SCALE = throw_away_task("scale")
FILL = replace(SCALE, task=SCALE.task.model_copy(update={"package": "fill-it", "op": "fill"}))
"""The task that the tiny project of tests/fakes/projects.py answers, as far as loading goes."""


def settings(cache: Path, **changes: object) -> GradeSettings:
    """For the CPU unless changed."""
    return GradeSettings(**{"target": "cpu", "protocol": "quick", "cache": cache, **changes})  # type: ignore[arg-type]


@pytest.mark.slow
def test_identical_project_is_built_once(grader: Grader, tmp_path: Path) -> None:
    """The second grade takes build and log from the cache; a wrong project is checked and never timed. With
    the first one's seed it finds the same errors, and says that the seed was known."""
    stages: list[str] = []
    project = zoo_project("returns_constant", token="test_grade")
    first = grader.grade(project, SCALE, log=tmp_path / "first", observer=stages.append)
    assert first.check is not None and first.check.seed is not None
    seed = bytes.fromhex(first.check.seed)
    second = grader.grade(project, SCALE, log=tmp_path / "second", seed=seed)
    assert second.build is not None and second.build.cache_hit
    first_log, second_log = ((tmp_path / name).read_text() for name in ("first", "second"))
    assert first_log.replace("built now", "cache hit") == second_log
    assert stages == ["build", "check"] and (first.stage, first.timing) == (Stage.CHECK, None)
    assert first.check.finding == first.finding
    assert second.check == first.check
    assert (KNOWN_SEED in second.flags, KNOWN_SEED in first.flags) == (True, False)
    assert (first.sandbox, first.sandbox_facts["network"]) == ("local", "open")


@pytest.mark.slow
def test_workers_are_prepared_ahead_and_none_while_a_project_is_timed(
    grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A student's while its project is built, that of references, once, while one is checked."""
    told: list[str] = []
    for name in ("prepare", "settle"):
        usual = getattr(grader._sandbox, name)
        monkeypatch.setattr(grader._sandbox, name, lambda *job, n=name, u=usual: [told.append(n), u(*job)])
    for check in (["prepare", "settle"], ["settle"]):
        told.clear()
        grade = grader.grade(zoo_project("correct"), SCALE, observer=told.append)
        assert grade.verdict is Verdict.CORRECT
        assert told == ["build", "prepare", "settle", "check", *check, "time"]


def test_missing_compiler_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    """A machine that cannot build for the target is an error of usage that names what is missing."""
    without = toolchain.model_copy(update={"gxx": None})
    with pytest.raises(UsageError, match=r"cannot build for cpu: .*g\+\+"):
        Grader(settings(tmp_path), SandboxPool(LocalBackend()), without, machine_facts(toolchain))


def test_failure_of_the_sandbox_is_raised(toolchain: Toolchain, tmp_path: Path) -> None:
    """What fails on our side is an exception, never a grade."""
    sandbox = SandboxPool(LocalBackend())
    sandbox.stop()
    grader = Grader(settings(tmp_path), sandbox, toolchain, machine_facts(toolchain))
    with pytest.raises(SandboxError, match="stopped"):
        grader.grade(zoo_project("correct"), SCALE)
    grader.close()


def test_reply_without_a_project(grader: Grader) -> None:
    """A reply that held no project has a grade of its own, at the first stage."""
    grade = grader.no_project(Finding(cause=Cause.REFUSAL, message="the model refused"), SCALE)
    assert (grade.verdict, grade.stage, grade.project) == (Verdict.NO_PROJECT, Stage.PROJECT, None)
    assert (grade.compiled, grade.correct) == (False, False)


class BuiltAndRun(NothingAhead):
    """Builds leave a library; workers are threads that follow a script."""

    name = "fake"

    def __init__(self, library: bytes, script: Callable[..., None], facts: ExitFacts | None = None) -> None:
        """`facts`: how workers end that hang up."""
        name = f"_fill_it_cuda_{projects.project().digest[:7]}.abi3.so"
        log = "# ninja log v7\n0\t1500\t1\tlib/b\tff\n"
        files = {f"{TREE}/lib/{name}": library, f"{TREE}/.ninja_log": log.encode()}
        self.builds = FakeSandbox(exit_facts("ok", "", 0), files)
        self.workers = ThreadSandbox(script, facts)

    def facts(self) -> dict[str, str]:
        return {}

    def start(self, job: Job) -> Process:
        return (self.builds if job.role == "build" else self.workers).start(job)


def cuda_grade(
    folder: Path,
    script: Callable[..., None],
    *,
    torch: str = "2.13.0+cu130",
    library: bytes = b"",
    task: LoadedTask = FILL,
    machine: MachineFacts = MACHINE,
    facts: ExitFacts | None = None,
) -> tuple[Grade, BuiltAndRun]:
    """Grade the tiny project for CUDA with nothing real but the grader (and the library, if given)."""
    sandbox = BuiltAndRun(library, script, facts)
    toolchain = projects.fake_toolchain(folder / "tools", torch=torch)
    grader = Grader(settings(folder / "cache", target="cuda"), sandbox, toolchain, machine)
    grade = grader.grade(projects.project(), task)
    grader.close()
    return grade, sandbox


class Dying:
    """A worker that is killed while it loads, the first `deaths` times; then an honest one."""

    def __init__(self, deaths: int) -> None:
        self._deaths = deaths

    def __call__(self, channel: socket.socket) -> None:
        self._deaths -= 1
        if self._deaths < 0:
            HonestWorker(untouched)(channel)
            return
        send(channel, {"hello": "2.13.0", "pid": 0})
        channel.recv(1 << 16)


@pytest.mark.parametrize(
    ("number", "deaths", "workers", "verdict"),
    [(9, 1, 2, Verdict.NOT_MEASURED), (9, 2, 2, Verdict.CRASHED), (11, 1, 1, Verdict.CRASHED)],
)
def test_a_worker_killed_from_outside_is_started_once_more(
    number: int, deaths: int, workers: int, verdict: Verdict, tmp_path: Path
) -> None:
    """One kill is nobody's fault, a second one is the project's, and so is a fault of its own at once."""
    script = Dying(deaths)
    grade, sandbox = cuda_grade(tmp_path, script, facts=exit_facts("signal", signal=number))
    assert (grade.verdict, len(sandbox.workers.jobs)) == (verdict, workers), grade.finding
    assert (REPEATED in grade.flags) == (workers == 2)
    assert len(sandbox.builds.jobs) == 1, "what was built is not built again"


def untouched(*operands: object, **scalars: object) -> None:
    """The check stage is not run."""
    raise AssertionError("an op was called")


def test_a_cuda_torch_really_imports(tmp_path: Path) -> None:
    """In a worker of role run, told where its operators must be; the first stage not run is the check."""
    worker = HonestWorker(untouched)
    grade, sandbox = cuda_grade(tmp_path, worker)
    assert (grade.verdict, grade.stage) == (Verdict.NOT_MEASURED, Stage.CHECK), grade.finding
    assert "it imports, and its operators are registered" in grade.finding.message
    (job,) = sandbox.workers.jobs
    assert job.role == "run" and job.limits.memory_bytes == GradeSettings.worker_memory_bytes
    (load,) = worker.messages
    assert load["namespace"] == f"_fill_it_cuda_{projects.project().digest[:7]}"
    assert sandbox.workers.processes[0].killed


def failing(error: str) -> Callable[..., None]:
    """A worker whose import fails."""

    def script(channel: socket.socket) -> None:
        send(channel, {"hello": "2.13.0", "pid": 0})
        channel.recv(1 << 16)
        send(channel, {"error": error, "where": "import"})

    return script


@pytest.mark.parametrize(
    ("script", "changes", "verdict", "said", "workers"),
    [
        (HonestWorker(untouched, operators=0), {}, Verdict.LOAD_FAILED, "registered no operator in", 1),
        (failing("ImportError: no module named einops"), {}, Verdict.LOAD_FAILED, "einops", 1),
        (failing("RuntimeError: No CUDA GPUs are available"), {}, Verdict.NOT_MEASURED, "asks for one", 1),
        (HonestWorker(untouched), {"torch": "2.13.0+cpu"}, Verdict.NOT_MEASURED, "not imported", 0),
        (HonestWorker(untouched), {"task": SCALE}, Verdict.LOAD_FAILED, "package is 'fill_it'", 0),
    ],
    ids=["no operators", "failed import", "import wants a GPU", "CPU-only torch", "another name"],
)
def test_how_far_a_cuda_project_comes_without_a_gpu(
    script: Callable[..., None],
    changes: dict[str, Any],
    verdict: Verdict,
    said: str,
    workers: int,
    tmp_path: Path,
) -> None:
    """A failed import is the student's, unless it asks for a GPU; a CPU-only torch imports nothing."""
    grade, sandbox = cuda_grade(tmp_path, script, **changes)
    assert (grade.verdict, grade.stage) == (verdict, Stage.LOAD), grade.finding
    assert said in grade.finding.message
    assert len(sandbox.workers.jobs) == workers


BORROWING = """
extern int cublasCreate_v2(void **);
int f(void) { return cublasCreate_v2(0); }
"""


@pytest.mark.parametrize("rule", ["forbid", "flag", "allow"])
def test_the_task_decides_what_a_borrowed_kernel_means(
    rule: str, tmp_path: Path, toolchain: Toolchain
) -> None:
    """A failure before anything is loaded, a flag beside the grade, or nothing."""
    library = shared_library(tmp_path, BORROWING)
    sandbox = BuiltAndRun(library, HonestWorker(untouched))
    cpu_only = toolchain.model_copy(
        update={"torch_cuda": None, "cuda": projects.fake_toolchain(tmp_path / "t").cuda}
    )
    grader = Grader(settings(tmp_path / "cache", target="cuda"), sandbox, cpu_only, MACHINE)
    task = replace(FILL, task=FILL.task.model_copy(update={"library_calls": rule}))
    grade = grader.grade(projects.project(), task)
    assert grade.build is not None and grade.build.calls is not None
    assert grade.build.calls.library == ("cublasCreate_v2",)
    assert grade.flags == (() if rule == "allow" else ("calls a library",))
    expected = Cause.LIBRARY_CALLS if rule == "forbid" else Cause.NO_CUDA_DEVICE
    assert (grade.finding.cause, grade.stage, grade.compiled) == (expected, Stage.LOAD, True), grade.finding


def test_judge_cannot_be_read_by_its_own_user(grader: Grader) -> None:
    """While a grader exists, this process is not dumpable: other processes of the user cannot read it."""
    import ctypes

    pr_get_dumpable = 3
    assert ctypes.CDLL(None).prctl(pr_get_dumpable, 0, 0, 0, 0) == 0
