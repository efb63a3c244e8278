"""Synthetic runs and trials with figures that can be checked by hand."""

from __future__ import annotations

import itertools
import random
from typing import Any

from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    Arm,
    BuildResult,
    CheckResult,
    ContenderTiming,
    Diagnostic,
    Finding,
    Grade,
    InfraFailure,
    Lane,
    MachineFacts,
    ModelSpec,
    Ratio,
    Reply,
    RunConfig,
    RunLock,
    RunRecord,
    Sampling,
    Spread,
    TimingResult,
    TrialKey,
    TrialRecord,
    Turn,
    Usage,
    WorkloadCheck,
    WorkloadTiming,
)
from harness.records.timing import BlockTelemetry, Extent

SKILL = "5" * 64
WITHOUT = Arm(kind="without_skill")
WITH = Arm(kind="with_skill", skills=(SKILL,))
PLACEBO = Arm(kind="placebo", skills=("9" * 64,))
OLD = Arm(kind="old_skill", skills=("4" * 64,))
MODEL = "anthropic/claude-haiku-4-5"
OTHER = "openai/gpt-5-mini"

_STAGE = {
    Verdict.NO_PROJECT: Stage.PROJECT,
    Verdict.BUILD_FAILED: Stage.BUILD,
    Verdict.LOAD_FAILED: Stage.LOAD,
    Verdict.NOT_MEASURED: Stage.LOAD,
    Verdict.CORRECT: Stage.TIME,
    Verdict.CHEATED: Stage.TIME,
}


def families(n_families: int, per_family: int = 1) -> dict[str, str]:
    """Task id to family: l1/f0t0 in f0, and so on."""
    return {f"l1/f{f}t{t}": f"f{f}" for f in range(n_families) for t in range(per_family)}


def machine(gpu: str | None = "NVIDIA H200") -> MachineFacts:
    return MachineFacts(
        platform="Linux-6.1-x86_64",
        python="3.11.9",
        cpu="AMD EPYC 9654",
        cpu_count=96,
        torch="2.10.0",
        gpu=gpu,
        driver="580.65" if gpu else None,
        cuda="13.0",
        nvcc="13.0.48",
        gxx="13.2.0",
    )


def run(tasks: dict[str, str], **changes: Any) -> RunRecord:
    """A run over tasks; changes go to the config (or `gpu`, `image`, `lock_skills`)."""
    gpu = changes.pop("gpu", "NVIDIA H200")
    skills = changes.pop("lock_skills", {"cuda-kernel-builder": SKILL})
    config: dict[str, Any] = {
        "tasks": tuple(tasks),
        "skills": ("cuda-kernel-builder",),
        "models": (ModelSpec(name=MODEL),),
        "arms": (WITHOUT, WITH),
        "repeats": 1,
        "target": "cuda",
        "protocol": "quick",
        "sandbox": "docker",
        "sampling": Sampling(),
        "metric": "deployed",
        "seed": 1,
    }
    return RunRecord(
        run_id="20260314T101500Z-cuda-kernel-builder-1f2e",
        created="2026-03-14T10:15:00Z",
        config=RunConfig(**(config | changes)),
        lock=RunLock(
            grader_version="0.1.0",
            tasks={task: f"{i:064x}" for i, task in enumerate(tasks)},
            families={task: task.rpartition("/")[2].partition("t")[0] for task in tasks},
            skills=skills,
            prompts={},
            machine=machine(gpu),
        ),
    )


def reply(tokens: tuple[int, int] | None = (1_000, 3_000), cost: float | None = 0.02, **more: Any) -> Reply:
    usage = Usage() if tokens is None else Usage(input_tokens=tokens[0], output_tokens=tokens[1])
    values: dict[str, Any] = {"text": "", "stop": "end", "latency_s": 12.5}
    values |= {"model_label": "claude-haiku-4-5-20251001", "created": "2026-03-14T10:20:00Z"}
    return Reply(usage=usage, cost_usd=cost, **(values | more))


def build(ok: bool = True, finding: Finding | None = None, **more: Any) -> BuildResult:
    values: dict[str, Any] = {"backend": "cuda", "key": "b" * 64, "cache_hit": False, "wall_s": 20.0}
    values |= {"compiler_s": 31.0, "architectures": ("sm_90",)}
    return BuildResult(ok=ok, finding=finding, **(values | more))


def diagnostic(finding: Finding) -> Diagnostic:
    """What a build that failed so might say: the finding's own text in every field that is a text."""
    first, *others = finding.message.split("\n")
    if finding.cause is Cause.BAD_BUILD_TOML:
        return Diagnostic(kind="build_toml", message=first, file="build.toml", line=12)
    return Diagnostic(
        kind="syntax",
        message=next((line.partition("error: ")[2] for line in others if "error: " in line), first),
        file="rms_norm_cuda/rms_norm.cu",
        line=41,
        column=13,
        source=others[1] if len(others) > 1 else first,
        advice=others[-1] if len(others) == 1 else None,
    )


def ratio(speedup: float, clear: bool = True) -> Ratio:
    """A speedup whose interval is 5 % wide on each side, or far too wide to be clear."""
    width = 1.05 if clear else 10.0
    return Ratio(value=speedup, low=speedup / width, high=speedup * width, n=8)


def contender(name: str, score_us: float) -> ContenderTiming:
    """The worker's clock and the judge's say the same."""
    spread = Spread(n=8, mean_us=score_us, median_us=score_us, q1_us=score_us, q3_us=score_us)
    figures = {"outside_us": score_us, "constant_us": 1.0, "uncertainty_us": 2.5}
    lane = Lane(name="batch", calls=8, inside=spread, claimed=True, matched=True, **figures)
    return ContenderTiming(name=name, lanes=(lane,), lane="batch", score_us=score_us, latency_us=30.0)


def timed(speedup: float, flags: tuple[str, ...] = (), **more: Any) -> TimingResult:
    """One workload beside two references; the library's op is the faster one."""
    us, value = 15.0 / speedup, ratio(speedup)
    block = BlockTelemetry(
        block=0, disturbed=(), runnable_most=2, steal_s=0.0, cpu_wait_s=0.01,
        cpu_mhz=Extent(low=2400.0, high=3100.0), sm_mhz=Extent(low=1785.0, high=1980.0),
        power_w=Extent(low=310.0, high=420.0), temperature_c=Extent(low=41.0, high=52.0),
        held_down_by=("power",),
    )  # fmt: skip
    workload = WorkloadTiming(
        workload="rows", dtype="float16", student=contender("student", us), speedup=value, bytes_moved=1,
        references=(contender("eager", 20.0), contender("library", 15.0)), telemetry=(block,), **more,
    )  # fmt: skip
    return TimingResult(workloads=(workload,), speedup=value, flags=flags)


def grade(
    key: TrialKey,
    cause: Cause = Cause.PASSED,
    message: str = "passed",
    *,
    speedup: float = 1.0,
    clear: bool = True,
    flags: tuple[str, ...] = (),
    worst_error: float | None = 0.5,
    **more: Any,
) -> Grade:
    finding = Finding(cause=cause, message=message)
    verdict = cause.verdict
    unbuilt = verdict is Verdict.BUILD_FAILED or cause is Cause.BUILD_TIMEOUT
    built = verdict is not Verdict.NO_PROJECT and not unbuilt and cause is not Cause.NO_TOOLCHAIN
    values: dict[str, Any] = {}
    if built:
        values["build"] = build()
    elif unbuilt:
        values["build"] = build(False, finding, diagnostics=(diagnostic(finding),))
    if verdict in (Verdict.CORRECT, Verdict.WRONG_RESULT):
        failed = None if verdict is Verdict.CORRECT else finding
        workload = WorkloadCheck(
            workload="small", dtype="float32", calls=4, worst_error=worst_error,
            allowed_error=1.0, worst_absolute=1e-6, finding=failed,
        )  # fmt: skip
        values["check"] = CheckResult(workloads=(workload,), finding=failed)
    if verdict is Verdict.CORRECT:
        values["timing"] = TimingResult(workloads=(), speedup=ratio(speedup, clear), flags=flags)
    values |= {
        "task": key.task,
        "task_digest": "t" * 64,
        "project": None if verdict is Verdict.NO_PROJECT else "a" * 64,
        "target": "cuda",
        "protocol": "quick",
        "verdict": verdict,
        "stage": Stage.BUILD if unbuilt else _STAGE.get(verdict, Stage.CHECK),
        "finding": finding,
        "sandbox": "docker",
        "sandbox_facts": {"network": "none", "user": "65534"},
        "machine": machine().digest,
        "wall_s": 30.0,
    }
    return Grade(**(values | more))


def trial(
    task: str,
    arm: Arm,
    cause: Cause = Cause.PASSED,
    message: str = "passed",
    *,
    model: str = MODEL,
    repeat: int = 0,
    failures: int = 0,
    answer: Reply | None = None,
    **graded: Any,
) -> TrialRecord:
    """One finished trial; an infra cause makes a lost one."""
    key = TrialKey(task=task, model=model, arm=arm.id, repeat=repeat)
    lost = cause.verdict is Verdict.INFRA
    ours = InfraFailure(cause=Cause.PROVIDER, message="HTTP 529 overloaded", at="2026-03-14T10:21:00Z")
    failed = [ours] * failures + ([InfraFailure(cause=cause, message=message, at=ours.at)] if lost else [])
    turn = None
    if not lost:
        made = grade(key, cause, message, **graded)
        turn = Turn(
            index=0, prompt_digest="p" * 64, reply=answer or reply(), project=made.project, grade=made
        )
    return TrialRecord(
        key=key,
        generation_key="g" * 64,
        grading_key=None,
        turns=(turn,) if turn else (),
        failures=tuple(failed),
        infra=lost,
        started="2026-03-14T10:20:00Z",
        finished="2026-03-14T10:22:00Z",
    )


NVCC = """ptxas/nvcc failed on rms_norm.cu (exit code 2)
rms_norm_cuda/rms_norm.cu(41): error: identifier "__nv_bfloat162" is undefined
      const __nv_bfloat162* row = reinterpret_cast<const __nv_bfloat162*>(x);
            ^
1 error detected in the compilation of "rms_norm_cuda/rms_norm.cu"."""
_FAILURES = (
    (Cause.COMPILE_ERROR, NVCC),
    (Cause.BAD_BUILD_TOML, "build.toml: [kernel.rms_norm] depends is missing; expected such as ['torch']"),
    (Cause.WRONG_VALUES, "workload odd_rows float16: worst error 41.2 of the tolerance at out[3, 17]"),
    (Cause.SIGNAL, "the worker died of signal 11 (SIGSEGV) in call 3 of workload large"),
    (Cause.TRUNCATED, "the reply stopped at the output limit of 16,000 tokens before a project was complete"),
    (Cause.MISSING_FUNCTION, "module rms_norm has no function `rms_norm`; it has ['_ops', 'forward']"),
    (Cause.WALL_TIMEOUT, "no answer within 60 s on workload large"),
)
_FAMILIES = ["norm", "softmax", "gemm", "attention", "reduce", "scan", "embed", "rotary", "quant", "conv"]


def study(
    *, gpu: bool = True, seed: int = 7, **changes: Any
) -> tuple[RunRecord, list[TrialRecord], dict[str, str]]:
    """A plausible study: 30 tasks in 10 families x 5 runs, a skill that helps."""
    draw = random.Random(seed)
    tasks = {f"l{1 + i % 2}/{f}_{'abc'[i]}": f for f in _FAMILIES for i in range(3)}
    record = run(tasks, repeats=5, gpu="NVIDIA H200" if gpu else None, **changes)
    no_gpu = (Cause.NO_CUDA_DEVICE, "no CUDA device on this machine: built, not loaded")
    made = []
    for model, task, arm, repeat in itertools.product(
        record.config.models, tasks, record.config.arms, range(5)
    ):
        skilled, hard = arm.kind == "with_skill", 0.12 * (_FAMILIES.index(tasks[task]) % 4)
        place: dict[str, Any] = {"model": model.name, "repeat": repeat, "failures": draw.random() < 0.01}
        tokens = (5_000 if skilled else 1_200, draw.randint(4_000, 14_000))
        place["answer"] = reply(tokens, draw.uniform(0.02, 0.08))
        cause, said = Cause.PASSED, "passed"
        if draw.random() < (0.78 if skilled else 0.52) - hard:
            speed = draw.lognormvariate(0.35 if skilled else 0.05, 0.35)
            if gpu:
                place |= {"flags": ("noisy host",) if draw.random() < 0.03 else (), "speedup": speed}
                place["clear"] = abs(speed - 1) > 0.05
        else:
            cause, said = draw.choice(_FAILURES)
        if not gpu and cause.verdict not in (Verdict.NO_PROJECT, Verdict.BUILD_FAILED):
            cause, said = no_gpu
        made.append(trial(task, arm, cause, said, **place))
    return record, made, tasks
