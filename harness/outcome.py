"""Stages, verdicts, causes, and the table that gives every cause its verdict."""

from __future__ import annotations

from enum import StrEnum


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


POLICY: dict[Cause, Verdict] = {
    Cause.EMPTY_REPLY: Verdict.NO_PROJECT,
    Cause.REFUSAL: Verdict.NO_PROJECT,
    Cause.TRUNCATED: Verdict.NO_PROJECT,
    Cause.NO_FILES: Verdict.NO_PROJECT,
    # The prompt, skill included, does not fit into the model's context; a retry would not either.
    Cause.CONTEXT_OVERFLOW: Verdict.NO_PROJECT,
    Cause.TOOL_LOOP: Verdict.NO_PROJECT,
    Cause.UNSAFE_PATH: Verdict.NO_PROJECT,
    Cause.TOO_LARGE: Verdict.NO_PROJECT,
    Cause.BAD_BUILD_TOML: Verdict.BUILD_FAILED,
    Cause.BAD_LAYOUT: Verdict.BUILD_FAILED,
    Cause.NO_BACKEND: Verdict.BUILD_FAILED,
    Cause.REFUSED_FLAG: Verdict.BUILD_FAILED,
    Cause.COMPILE_ERROR: Verdict.BUILD_FAILED,
    Cause.LINK_ERROR: Verdict.BUILD_FAILED,
    Cause.BUILD_TIMEOUT: Verdict.TIMED_OUT,
    Cause.BUILD_LIMIT: Verdict.BUILD_FAILED,
    Cause.IMPORT_ERROR: Verdict.LOAD_FAILED,
    Cause.MISSING_FUNCTION: Verdict.LOAD_FAILED,
    # It compiled, so it counts as compiled; the judge refuses to load it.
    Cause.LIBRARY_CALLS: Verdict.LOAD_FAILED,
    Cause.OP_RAISED: Verdict.CRASHED,
    Cause.WRONG_VALUES: Verdict.WRONG_RESULT,
    Cause.UNWRITTEN_OUTPUT: Verdict.WRONG_RESULT,
    Cause.MUTATED_INPUT: Verdict.WRONG_RESULT,
    Cause.WROTE_OUTSIDE: Verdict.WRONG_RESULT,
    Cause.NONDETERMINISTIC: Verdict.WRONG_RESULT,
    Cause.CHANGED_GLOBALS: Verdict.WRONG_RESULT,
    Cause.EXITED_EARLY: Verdict.CRASHED,
    Cause.SIGNAL: Verdict.CRASHED,
    Cause.OUT_OF_MEMORY: Verdict.CRASHED,
    Cause.BROKE_PROTOCOL: Verdict.CRASHED,
    Cause.WALL_TIMEOUT: Verdict.TIMED_OUT,
    Cause.OUTPUT_LIMIT: Verdict.CRASHED,
    # A healthy device failed under the same project twice.
    Cause.DEVICE_FAULT: Verdict.CRASHED,
    Cause.CLOCK: Verdict.CHEATED,
    # References are slower while the student's process is frozen, by kernel work on its behalf, in 3 of 3.
    Cause.INTERFERENCE: Verdict.CHEATED,
    # Faster than the board can be, in 3 of 3 fresh processes.
    Cause.PHYSICS: Verdict.CHEATED,
    Cause.NO_CUDA_DEVICE: Verdict.NOT_MEASURED,
    Cause.NO_CUDA_TRANSPORT: Verdict.NOT_MEASURED,
    Cause.NO_TOOLCHAIN: Verdict.NOT_MEASURED,
    Cause.BUILD_ONLY: Verdict.NOT_MEASURED,
    Cause.PROVIDER: Verdict.INFRA,
    Cause.SANDBOX: Verdict.INFRA,
    Cause.STORAGE: Verdict.INFRA,
    Cause.DEVICE: Verdict.INFRA,
    Cause.HARNESS_BUG: Verdict.INFRA,
    Cause.PASSED: Verdict.CORRECT,
}
"""The verdict of every cause. A trial that ends as `infra` is tried again; no other is."""
