"""Stages, verdicts, and causes with their verdicts."""

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
    """Why a verdict was reached, and which; a message beside it has the details."""

    verdict: Verdict

    def __new__(cls, value: str, verdict: Verdict) -> Cause:
        member = str.__new__(cls, value)
        member._value_ = value
        member.verdict = verdict
        return member

    # project: the reply holds none
    EMPTY_REPLY = "empty_reply", Verdict.NO_PROJECT
    REFUSAL = "refusal", Verdict.NO_PROJECT
    TRUNCATED = "truncated", Verdict.NO_PROJECT
    NO_FILES = "no_files", Verdict.NO_PROJECT
    # The prompt, skill included, does not fit into the model's context; a retry would not either.
    CONTEXT_OVERFLOW = "context_overflow", Verdict.NO_PROJECT
    TOOL_LOOP = "tool_loop", Verdict.NO_PROJECT
    UNSAFE_PATH = "unsafe_path", Verdict.NO_PROJECT
    TOO_LARGE = "too_large", Verdict.NO_PROJECT
    # build
    BAD_BUILD_TOML = "bad_build_toml", Verdict.BUILD_FAILED
    BAD_LAYOUT = "bad_layout", Verdict.BUILD_FAILED
    NO_BACKEND = "no_backend", Verdict.BUILD_FAILED
    REFUSED_FLAG = "refused_flag", Verdict.BUILD_FAILED
    COMPILE_ERROR = "compile_error", Verdict.BUILD_FAILED
    LINK_ERROR = "link_error", Verdict.BUILD_FAILED
    BUILD_TIMEOUT = "build_timeout", Verdict.TIMED_OUT
    BUILD_LIMIT = "build_limit", Verdict.BUILD_FAILED
    # load
    IMPORT_ERROR = "import_error", Verdict.LOAD_FAILED
    MISSING_FUNCTION = "missing_function", Verdict.LOAD_FAILED
    # It compiled, so it counts as compiled; the judge refuses to load it.
    LIBRARY_CALLS = "library_calls", Verdict.LOAD_FAILED
    # check
    OP_RAISED = "op_raised", Verdict.CRASHED
    WRONG_VALUES = "wrong_values", Verdict.WRONG_RESULT
    UNWRITTEN_OUTPUT = "unwritten_output", Verdict.WRONG_RESULT
    MUTATED_INPUT = "mutated_input", Verdict.WRONG_RESULT
    WROTE_OUTSIDE = "wrote_outside", Verdict.WRONG_RESULT
    NONDETERMINISTIC = "nondeterministic", Verdict.WRONG_RESULT
    CHANGED_GLOBALS = "changed_globals", Verdict.WRONG_RESULT
    EXITED_EARLY = "exited_early", Verdict.CRASHED
    SIGNAL = "signal", Verdict.CRASHED
    OUT_OF_MEMORY = "out_of_memory", Verdict.CRASHED
    BROKE_PROTOCOL = "broke_protocol", Verdict.CRASHED
    WALL_TIMEOUT = "wall_timeout", Verdict.TIMED_OUT
    OUTPUT_LIMIT = "output_limit", Verdict.CRASHED
    # A healthy device failed under the same project twice.
    DEVICE_FAULT = "device_fault", Verdict.CRASHED
    # cheats
    CLOCK = "clock", Verdict.CHEATED
    # On a device, outputs change after the clock has stopped, in 2 of 2 processes.
    LATE_OUTPUT = "late_output", Verdict.CHEATED
    # References are slower while the student's process is frozen, by kernel work on its behalf, in 3 of 3.
    INTERFERENCE = "interference", Verdict.CHEATED
    # Faster than the board can be, in 3 of 3 fresh processes.
    PHYSICS = "physics", Verdict.CHEATED
    # this machine cannot run the next stage
    NO_CUDA_DEVICE = "no_cuda_device", Verdict.NOT_MEASURED
    NO_CUDA_TRANSPORT = "no_cuda_transport", Verdict.NOT_MEASURED
    NO_TOOLCHAIN = "no_toolchain", Verdict.NOT_MEASURED
    # infrastructure: only these trials are tried again
    PROVIDER = "provider", Verdict.INFRA
    SANDBOX = "sandbox", Verdict.INFRA
    STORAGE = "storage", Verdict.INFRA
    DEVICE = "device", Verdict.INFRA
    HARNESS_BUG = "harness_bug", Verdict.INFRA

    PASSED = "passed", Verdict.CORRECT
