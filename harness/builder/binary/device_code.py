"""What the compiler made of the kernels: registers, memory and instructions, from the linked library.

Evidence only. Whatever goes wrong here is a note and "not measured", never a failed build.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from harness.builder.binary.cubins import CLASSES, MAX_KERNELS, MAX_NAME
from harness.builder.toolchain import CUDA_EXTRA, Toolchain
from harness.errors import SandboxError
from harness.records import BuildResult, DeviceKernel, Record
from sandboxes.job import ExitFacts, Job, Limits, Sandbox
from sandboxes.orphans import owned_folder
from sandboxes.scratch import CollectError

NOT_MEASURED: Final = "compiled kernels not measured: "
"""How a note begins when there are no figures at all."""
_SCRIPT: Final = Path(__file__).with_name("cubins.py")
_ANSWER: Final = "kernels.json"
# nvdisasm reads about 60,000 instructions a second on one core: 2 million fit.
_READING_S: Final = 40.0
_LIMITS: Final = Limits(wall_s=60.0, memory_bytes=4 << 30, output_bytes=1 << 16)
_ANSWER_LIMIT: Final = 1 << 20
_LARGEST: Final = 1 << 40


@dataclass(frozen=True)
class DeviceCode:
    """What was found in one library."""

    kernels: tuple[DeviceKernel, ...] | None
    """The longest programs first; None when nothing could be measured."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""


def read_device_code(library: bytes, toolchain: Toolchain, sandbox: Sandbox) -> DeviceCode:
    """The kernels of a linked library; it is hostile, so only the sandbox reads it."""
    if toolchain.disassembler is None:
        return _nothing(f"no cuobjdump and nvdisasm found: {CUDA_EXTRA}")
    try:
        facts, answer = _run(library, toolchain, sandbox)
    except (SandboxError, CollectError) as error:
        return _nothing(str(error))
    if answer is None:
        return _nothing(f"the reader ended with {facts.status}: {facts.output[-200:].strip()}")
    return _believed(answer)


def with_kernels(result: BuildResult, library: bytes, toolchain: Toolchain, sandbox: Sandbox) -> BuildResult:
    """A successful build with the figures of its kernels; one for cpu is returned as it is."""
    if result.backend != "cuda":
        return result
    code = read_device_code(library, toolchain, sandbox)
    others = [w for w in result.warnings if not w.startswith(NOT_MEASURED)]
    return result.model_copy(update={"kernels": code.kernels, "warnings": (*others, *code.notes)})


def _nothing(reason: str) -> DeviceCode:
    return DeviceCode(None, (NOT_MEASURED + reason,))


def _run(library: bytes, toolchain: Toolchain, sandbox: Sandbox) -> tuple[ExitFacts, bytes | None]:
    """How the job ended, and its answer when that is whole."""
    with owned_folder("kernels") as name:
        source = Path(name) / "library.so"
        source.write_bytes(library)
        process = sandbox.start(_job(source, toolchain))
        try:
            facts = process.wait()
            if facts is None:
                raise SandboxError("the sandbox returned before the reader's end")
            paths = process.collect([_ANSWER], Path(name) / "out") if facts.status == "ok" else []
            small = [p for p in paths if p.stat().st_size <= _ANSWER_LIMIT]
            return facts, small[0].read_bytes() if small else None
        finally:
            process.close()


def _job(source: Path, toolchain: Toolchain) -> Job:
    scratch, tools = "{scratch}", toolchain.disassembler
    argv = [str(toolchain.python), "-I", "-S", f"{scratch}/{_SCRIPT.name}", f"{tools}/cuobjdump"]
    argv += [f"{tools}/nvdisasm", f"{scratch}/{source.name}", f"{scratch}/{_ANSWER}", str(_READING_S)]
    return Job(
        role="build",
        argv=argv,
        limits=_LIMITS,
        inputs={_SCRIPT.name: _SCRIPT, source.name: source},
        readable=toolchain.readable_tools(),
        environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )


# --- what is believed ------------------------------------------------------------------------

_Text = Annotated[str, Field(max_length=MAX_NAME)]


class _Answer(Record):
    """What the reader writes; it read hostile bytes, so it may be anything."""

    kernels: Annotated[tuple[DeviceKernel, ...], Field(max_length=MAX_KERNELS)]
    found: Annotated[int, Field(ge=0, lt=_LARGEST)]
    notes: Annotated[tuple[_Text, ...], Field(max_length=8)]


def _believed(answer: bytes) -> DeviceCode:
    try:
        read = _Answer.model_validate_json(answer)
    except ValidationError as error:
        return _nothing(f"the reader's answer has {error.error_count()} errors")
    if not all(_is_sane(kernel) for kernel in read.kernels):
        return _nothing("the reader's answer makes no sense")
    if read.notes and not read.kernels:
        return _nothing(_printable("; ".join(read.notes)))
    notes = [f"compiled kernels: {_printable(note)}" for note in read.notes]
    if read.found > len(read.kernels):
        notes.append(f"compiled kernels: {read.found} found, the longest {len(read.kernels)} recorded")
    kernels = tuple(k.model_copy(update={"name": _printable(k.name)}) for k in read.kernels)
    return DeviceCode(kernels, tuple(notes))


def _is_sane(kernel: DeviceKernel) -> bool:
    counts = kernel.instructions or {}
    figures = [kernel.registers, kernel.shared_bytes, kernel.stack_bytes, *counts.values()]
    figures += [f for f in (kernel.spill_store_bytes, kernel.spill_load_bytes) if f is not None]
    sizes = all(0 <= figure < _LARGEST for figure in figures)
    names = 0 < len(kernel.name) <= MAX_NAME and len(kernel.architecture) <= 16
    whole = counts.get("all", 0) == sum(n for name, n in counts.items() if name != "all")
    return sizes and names and whole and set(counts) <= set(CLASSES) and kernel.architecture.isidentifier()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
