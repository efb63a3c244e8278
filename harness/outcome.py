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
    are the student's. `meaning` is a sentence for reports."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Verdict:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    NO_PROJECT = "no_project", "The reply holds no project that could be built."
    BUILD_FAILED = (
        "build_failed",
        "The project did not compile or link, or its build.toml or layout was refused.",
    )
    LOAD_FAILED = (
        "load_failed",
        "It compiled, but it cannot be imported, lacks the function, or calls what the task forbids.",
    )
    WRONG_RESULT = "wrong_result", "It ran, and an output was wrong on at least one case."
    CRASHED = "crashed", "The process that ran it died, raised an exception, or sent malformed answers."
    TIMED_OUT = "timed_out", "It exceeded a time limit of the build or of the run."
    CHEATED = (
        "cheated",
        "It does work that makes a measurement look better than it is, in every fresh process.",
    )
    CORRECT = "correct", "Every case was right; a speedup was measured unless timing was switched off."
    INFRA = (
        "infra",
        "A failure of liftbench, the provider or the machine. It is tried again and never scored.",
    )
    NOT_MEASURED = (
        "not_measured",
        "This machine cannot run the next stage (no GPU, say): neither a success nor a failure.",
    )


class Cause(StrEnum):
    """Why a verdict was reached, and which; a message beside it has the details."""

    verdict: Verdict
    meaning: str

    def __new__(cls, value: str, verdict: Verdict, meaning: str) -> Cause:
        member = str.__new__(cls, value)
        member._value_ = value
        member.verdict = verdict
        member.meaning = meaning
        return member

    # project: the reply holds none
    EMPTY_REPLY = "empty_reply", Verdict.NO_PROJECT, "The reply has no text."
    REFUSAL = "refusal", Verdict.NO_PROJECT, "The model refused."
    TRUNCATED = (
        "truncated",
        Verdict.NO_PROJECT,
        "The reply ended at the output limit before a project was complete.",
    )
    NO_FILES = "no_files", Verdict.NO_PROJECT, "No fenced block is named build.toml."
    CONTEXT_OVERFLOW = (
        "context_overflow",
        Verdict.NO_PROJECT,
        "The prompt, skill included, does not fit into the model's context; a retry would not either.",
    )
    TOOL_LOOP = (
        "tool_loop",
        Verdict.NO_PROJECT,
        "The replies only called the file tool after there was nothing left to read.",
    )
    UNSAFE_PATH = (
        "unsafe_path",
        Verdict.NO_PROJECT,
        "A path is absolute, leaves the project, or is not portable.",
    )
    TOO_LARGE = "too_large", Verdict.NO_PROJECT, "More files or bytes than are read."
    # build
    BAD_BUILD_TOML = (
        "bad_build_toml",
        Verdict.BUILD_FAILED,
        "build.toml is not valid, or kernel-builder would refuse it.",
    )
    BAD_LAYOUT = (
        "bad_layout",
        Verdict.BUILD_FAILED,
        "A file that the build needs is missing or in the wrong place.",
    )
    NO_BACKEND = "no_backend", Verdict.BUILD_FAILED, "build.toml names no component for the target."
    REFUSED_FLAG = (
        "refused_flag",
        Verdict.BUILD_FAILED,
        "A compiler flag is not on the list of allowed flags.",
    )
    COMPILE_ERROR = "compile_error", Verdict.BUILD_FAILED, "A compiler reported an error."
    LINK_ERROR = (
        "link_error",
        Verdict.BUILD_FAILED,
        "The library could not be linked, or a symbol that it needs exists nowhere.",
    )
    BUILD_TIMEOUT = "build_timeout", Verdict.TIMED_OUT, "The build exceeded its wall-clock limit."
    BUILD_LIMIT = (
        "build_limit",
        Verdict.BUILD_FAILED,
        "The build exceeded its limit of memory, output or processes.",
    )
    # load
    IMPORT_ERROR = "import_error", Verdict.LOAD_FAILED, "Importing the package raised an exception."
    MISSING_FUNCTION = (
        "missing_function",
        Verdict.LOAD_FAILED,
        "The package does not export the function, or with another signature.",
    )
    LIBRARY_CALLS = (
        "library_calls",
        Verdict.LOAD_FAILED,
        "It calls PyTorch or a library for work that the task wants written; it counts as compiled.",
    )
    # check
    OP_RAISED = "op_raised", Verdict.CRASHED, "The function raised an exception."
    WRONG_VALUES = (
        "wrong_values",
        Verdict.WRONG_RESULT,
        "An output differs from the double-precision truth by more than the tolerance.",
    )
    UNWRITTEN_OUTPUT = (
        "unwritten_output",
        Verdict.WRONG_RESULT,
        "Some output elements still hold what was there before the call.",
    )
    MUTATED_INPUT = "mutated_input", Verdict.WRONG_RESULT, "The call changed an input."
    WROTE_OUTSIDE = "wrote_outside", Verdict.WRONG_RESULT, "The call wrote beside the memory of its outputs."
    NONDETERMINISTIC = (
        "nondeterministic",
        Verdict.WRONG_RESULT,
        "Equal inputs gave different outputs, where the task wants equal ones.",
    )
    CHANGED_GLOBALS = (
        "changed_globals",
        Verdict.WRONG_RESULT,
        "The call changed settings of the process that other calls depend on.",
    )
    EXITED_EARLY = "exited_early", Verdict.CRASHED, "The process exited before it had answered."
    SIGNAL = "signal", Verdict.CRASHED, "The process was killed by a signal, such as a segmentation fault."
    OUT_OF_MEMORY = "out_of_memory", Verdict.CRASHED, "It exceeded its limit of memory."
    BROKE_PROTOCOL = (
        "broke_protocol",
        Verdict.CRASHED,
        "The process answered with something other than what was asked for.",
    )
    WALL_TIMEOUT = "wall_timeout", Verdict.TIMED_OUT, "A call or the whole run exceeded its wall-clock limit."
    OUTPUT_LIMIT = "output_limit", Verdict.CRASHED, "It wrote more text or files than allowed."
    DEVICE_FAULT = "device_fault", Verdict.CRASHED, "A healthy device failed under the same project twice."
    # cheats
    CLOCK = (
        "clock",
        Verdict.CHEATED,
        "The times that the process claims are below the judge's in 3 of 3 fresh processes.",
    )
    LATE_OUTPUT = (
        "late_output",
        Verdict.CHEATED,
        "On a device, outputs changed after the clock had stopped, in 2 of 2 processes.",
    )
    INTERFERENCE = (
        "interference",
        Verdict.CHEATED,
        "References are slower beside its frozen process, by kernel work on its behalf, in 3 of 3.",
    )
    PHYSICS = "physics", Verdict.CHEATED, "Faster than the board can be, in 3 of 3 fresh processes."
    # this machine cannot run the next stage
    NO_CUDA_DEVICE = (
        "no_cuda_device",
        Verdict.NOT_MEASURED,
        "This machine has no usable GPU; the project was built, not run.",
    )
    NO_CUDA_TRANSPORT = (
        "no_cuda_transport",
        Verdict.NOT_MEASURED,
        "Device memory cannot be shared with the project's process on this machine.",
    )
    NO_TOOLCHAIN = (
        "no_toolchain",
        Verdict.NOT_MEASURED,
        "A compiler that the target needs is not installed here.",
    )
    # infrastructure: only these trials are tried again
    PROVIDER = "provider", Verdict.INFRA, "The model's provider failed or could not be reached."
    SANDBOX = "sandbox", Verdict.INFRA, "The sandbox failed."
    STORAGE = "storage", Verdict.INFRA, "A file could not be read or written."
    DEVICE = "device", Verdict.INFRA, "The device was lost or failed its health check."
    HARNESS_BUG = "harness_bug", Verdict.INFRA, "An unexpected exception in liftbench."

    PASSED = "passed", Verdict.CORRECT, "All stages passed."
