"""Stages, verdicts and causes, and the one table that says what each cause means.

Every cause has exactly one policy row, and only `infra` rows are retried.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Stage(StrEnum):
    """The stages of a grade, in the order in which they run."""

    PROJECT = "project"
    BUILD = "build"
    LOAD = "load"
    CHECK = "check"
    TIME = "time"


class Verdict(StrEnum):
    """What became of a project. `infra` is ours; `not_measured` is the machine's; the rest the student's."""

    NO_PROJECT = "no_project"
    BUILD_FAILED = "build_failed"
    LOAD_FAILED = "load_failed"
    WRONG_RESULT = "wrong_result"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    CHEATED = "cheated"
    CORRECT = "correct"
    INFRA = "infra"
    NOT_MEASURED = "not_measured"


class Cause(StrEnum):
    """Why a verdict was reached; the message beside it carries the details."""

    # project: what came back is no project
    EMPTY_REPLY = "empty_reply"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    NO_FILES = "no_files"
    CONTEXT_OVERFLOW = "context_overflow"
    TOOL_LOOP = "tool_loop"
    UNSAFE_PATH = "unsafe_path"
    TOO_LARGE = "too_large"
    # build
    BAD_BUILD_TOML = "bad_build_toml"
    BAD_LAYOUT = "bad_layout"
    NO_BACKEND = "no_backend"
    REFUSED_FLAG = "refused_flag"
    COMPILE_ERROR = "compile_error"
    LINK_ERROR = "link_error"
    BUILD_TIMEOUT = "build_timeout"
    BUILD_LIMIT = "build_limit"
    # load
    IMPORT_ERROR = "import_error"
    MISSING_FUNCTION = "missing_function"
    LIBRARY_CALLS = "library_calls"
    # check
    OP_RAISED = "op_raised"
    WRONG_VALUES = "wrong_values"
    UNWRITTEN_OUTPUT = "unwritten_output"
    MUTATED_INPUT = "mutated_input"
    WROTE_OUTSIDE = "wrote_outside"
    NONDETERMINISTIC = "nondeterministic"
    CHANGED_GLOBALS = "changed_globals"
    EXITED_EARLY = "exited_early"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    BROKE_PROTOCOL = "broke_protocol"
    WALL_TIMEOUT = "wall_timeout"
    OUTPUT_LIMIT = "output_limit"
    DEVICE_FAULT = "device_fault"
    # cheats
    CLOCK = "clock"
    INTERFERENCE = "interference"
    PHYSICS = "physics"
    # the machine cannot go further
    NO_CUDA_DEVICE = "no_cuda_device"
    NO_CUDA_TRANSPORT = "no_cuda_transport"
    NO_TOOLCHAIN = "no_toolchain"
    BUILD_ONLY = "build_only"
    # ours
    PROVIDER = "provider"
    SANDBOX = "sandbox"
    STORAGE = "storage"
    DEVICE = "device"
    HARNESS_BUG = "harness_bug"
    # all well
    PASSED = "passed"


class Policy(NamedTuple):
    """How a cause is treated: the verdict it means, whether the trial is retried, whether it is scored."""

    verdict: Verdict
    retry: bool
    scored: bool


def _student(verdict: Verdict) -> Policy:
    return Policy(verdict, retry=False, scored=True)


_INFRA = Policy(Verdict.INFRA, retry=True, scored=False)
# `not_measured` is scored in the compile rate only; the report leaves it out of every later metric.
_UNMEASURED = Policy(Verdict.NOT_MEASURED, retry=False, scored=True)

POLICY: dict[Cause, Policy] = {
    Cause.EMPTY_REPLY: _student(Verdict.NO_PROJECT),
    Cause.REFUSAL: _student(Verdict.NO_PROJECT),
    Cause.TRUNCATED: _student(Verdict.NO_PROJECT),
    Cause.NO_FILES: _student(Verdict.NO_PROJECT),
    # The prompt, skill included, does not fit into the model's context: asking again would not mend it.
    Cause.CONTEXT_OVERFLOW: _student(Verdict.NO_PROJECT),
    Cause.TOOL_LOOP: _student(Verdict.NO_PROJECT),
    Cause.UNSAFE_PATH: _student(Verdict.NO_PROJECT),
    Cause.TOO_LARGE: _student(Verdict.NO_PROJECT),
    Cause.BAD_BUILD_TOML: _student(Verdict.BUILD_FAILED),
    Cause.BAD_LAYOUT: _student(Verdict.BUILD_FAILED),
    Cause.NO_BACKEND: _student(Verdict.BUILD_FAILED),
    Cause.REFUSED_FLAG: _student(Verdict.BUILD_FAILED),
    Cause.COMPILE_ERROR: _student(Verdict.BUILD_FAILED),
    Cause.LINK_ERROR: _student(Verdict.BUILD_FAILED),
    Cause.BUILD_TIMEOUT: _student(Verdict.TIMED_OUT),
    Cause.BUILD_LIMIT: _student(Verdict.BUILD_FAILED),
    Cause.IMPORT_ERROR: _student(Verdict.LOAD_FAILED),
    Cause.MISSING_FUNCTION: _student(Verdict.LOAD_FAILED),
    # It compiled, so it counts there; the judge refuses to load it (docs/decisions/0010-library-calls.md).
    Cause.LIBRARY_CALLS: _student(Verdict.LOAD_FAILED),
    Cause.OP_RAISED: _student(Verdict.CRASHED),
    Cause.WRONG_VALUES: _student(Verdict.WRONG_RESULT),
    Cause.UNWRITTEN_OUTPUT: _student(Verdict.WRONG_RESULT),
    Cause.MUTATED_INPUT: _student(Verdict.WRONG_RESULT),
    Cause.WROTE_OUTSIDE: _student(Verdict.WRONG_RESULT),
    Cause.NONDETERMINISTIC: _student(Verdict.WRONG_RESULT),
    Cause.CHANGED_GLOBALS: _student(Verdict.WRONG_RESULT),
    Cause.EXITED_EARLY: _student(Verdict.CRASHED),
    Cause.SIGNAL: _student(Verdict.CRASHED),
    Cause.OUT_OF_MEMORY: _student(Verdict.CRASHED),
    Cause.BROKE_PROTOCOL: _student(Verdict.CRASHED),
    Cause.WALL_TIMEOUT: _student(Verdict.TIMED_OUT),
    Cause.OUTPUT_LIMIT: _student(Verdict.CRASHED),
    # A device that was well went wrong under the same project twice (health.py).
    Cause.DEVICE_FAULT: _student(Verdict.CRASHED),
    Cause.CLOCK: _student(Verdict.CHEATED),
    # References are slower while its process stands frozen, by the kernel's work for it, in 3 of 3 processes.
    Cause.INTERFERENCE: _student(Verdict.CHEATED),
    # Faster than the board can be, in 3 of 3 fresh processes (judge/physics.py).
    Cause.PHYSICS: _student(Verdict.CHEATED),
    Cause.NO_CUDA_DEVICE: _UNMEASURED,
    Cause.NO_CUDA_TRANSPORT: _UNMEASURED,
    Cause.NO_TOOLCHAIN: _UNMEASURED,
    Cause.BUILD_ONLY: _UNMEASURED,
    Cause.PROVIDER: _INFRA,
    Cause.SANDBOX: _INFRA,
    Cause.STORAGE: _INFRA,
    Cause.DEVICE: _INFRA,
    Cause.HARNESS_BUG: _INFRA,
    Cause.PASSED: _student(Verdict.CORRECT),
}
