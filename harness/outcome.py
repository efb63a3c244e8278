"""Stages, verdicts and causes, and the policy table that gives every cause its verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Stage(StrEnum):
    """Stages of a grade, in order."""

    PROJECT = "project"
    BUILD = "build"
    LOAD = "load"
    CHECK = "check"
    TIME = "time"


class Verdict(StrEnum):
    """Outcome of a trial. `infra` is liftbench's failure, `not_measured` a limit of this machine, all others
    are the student's."""

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
    """Why a verdict was reached; a message beside it has the details."""

    # project: the reply holds none
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
    # this machine cannot run the next stage
    NO_CUDA_DEVICE = "no_cuda_device"
    NO_CUDA_TRANSPORT = "no_cuda_transport"
    NO_TOOLCHAIN = "no_toolchain"
    BUILD_ONLY = "build_only"
    # infrastructure
    PROVIDER = "provider"
    SANDBOX = "sandbox"
    STORAGE = "storage"
    DEVICE = "device"
    HARNESS_BUG = "harness_bug"

    PASSED = "passed"


class Policy(NamedTuple):
    """How a cause is treated."""

    verdict: Verdict
    retry: bool = False
    """Whether a trial that failed for this cause is tried again; only infrastructure failures are."""


_INFRA = Policy(Verdict.INFRA, retry=True)

POLICY: dict[Cause, Policy] = {
    Cause.EMPTY_REPLY: Policy(Verdict.NO_PROJECT),
    Cause.REFUSAL: Policy(Verdict.NO_PROJECT),
    Cause.TRUNCATED: Policy(Verdict.NO_PROJECT),
    Cause.NO_FILES: Policy(Verdict.NO_PROJECT),
    # The prompt, skill included, does not fit into the model's context; a retry would not either.
    Cause.CONTEXT_OVERFLOW: Policy(Verdict.NO_PROJECT),
    Cause.TOOL_LOOP: Policy(Verdict.NO_PROJECT),
    Cause.UNSAFE_PATH: Policy(Verdict.NO_PROJECT),
    Cause.TOO_LARGE: Policy(Verdict.NO_PROJECT),
    Cause.BAD_BUILD_TOML: Policy(Verdict.BUILD_FAILED),
    Cause.BAD_LAYOUT: Policy(Verdict.BUILD_FAILED),
    Cause.NO_BACKEND: Policy(Verdict.BUILD_FAILED),
    Cause.REFUSED_FLAG: Policy(Verdict.BUILD_FAILED),
    Cause.COMPILE_ERROR: Policy(Verdict.BUILD_FAILED),
    Cause.LINK_ERROR: Policy(Verdict.BUILD_FAILED),
    Cause.BUILD_TIMEOUT: Policy(Verdict.TIMED_OUT),
    Cause.BUILD_LIMIT: Policy(Verdict.BUILD_FAILED),
    Cause.IMPORT_ERROR: Policy(Verdict.LOAD_FAILED),
    Cause.MISSING_FUNCTION: Policy(Verdict.LOAD_FAILED),
    # It compiled, so it counts as compiled; the judge refuses to load it.
    Cause.LIBRARY_CALLS: Policy(Verdict.LOAD_FAILED),
    Cause.OP_RAISED: Policy(Verdict.CRASHED),
    Cause.WRONG_VALUES: Policy(Verdict.WRONG_RESULT),
    Cause.UNWRITTEN_OUTPUT: Policy(Verdict.WRONG_RESULT),
    Cause.MUTATED_INPUT: Policy(Verdict.WRONG_RESULT),
    Cause.WROTE_OUTSIDE: Policy(Verdict.WRONG_RESULT),
    Cause.NONDETERMINISTIC: Policy(Verdict.WRONG_RESULT),
    Cause.CHANGED_GLOBALS: Policy(Verdict.WRONG_RESULT),
    Cause.EXITED_EARLY: Policy(Verdict.CRASHED),
    Cause.SIGNAL: Policy(Verdict.CRASHED),
    Cause.OUT_OF_MEMORY: Policy(Verdict.CRASHED),
    Cause.BROKE_PROTOCOL: Policy(Verdict.CRASHED),
    Cause.WALL_TIMEOUT: Policy(Verdict.TIMED_OUT),
    Cause.OUTPUT_LIMIT: Policy(Verdict.CRASHED),
    # A healthy device failed under the same project twice.
    Cause.DEVICE_FAULT: Policy(Verdict.CRASHED),
    Cause.CLOCK: Policy(Verdict.CHEATED),
    # References are slower while the student's process is frozen, by kernel work on its behalf, in 3 of 3.
    Cause.INTERFERENCE: Policy(Verdict.CHEATED),
    # Faster than the board can be, in 3 of 3 fresh processes.
    Cause.PHYSICS: Policy(Verdict.CHEATED),
    Cause.NO_CUDA_DEVICE: Policy(Verdict.NOT_MEASURED),
    Cause.NO_CUDA_TRANSPORT: Policy(Verdict.NOT_MEASURED),
    Cause.NO_TOOLCHAIN: Policy(Verdict.NOT_MEASURED),
    Cause.BUILD_ONLY: Policy(Verdict.NOT_MEASURED),
    Cause.PROVIDER: _INFRA,
    Cause.SANDBOX: _INFRA,
    # A full or missing folder stays so until somebody repairs it.
    Cause.STORAGE: Policy(Verdict.INFRA, retry=False),
    Cause.DEVICE: _INFRA,
    Cause.HARNESS_BUG: _INFRA,
    Cause.PASSED: Policy(Verdict.CORRECT),
}
