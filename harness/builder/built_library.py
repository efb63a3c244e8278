"""Facts about a built library, as evidence: functions that it calls, and its compiled kernels.

The library is hostile: it is read here or in the sandbox, and never loaded. A fact that cannot be determined
is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple, get_args

from pydantic import Field, ValidationError

from harness.builder.cubins import CLASSES, MAX_KERNELS, MAX_NAME
from harness.builder.elf import ElfError, SharedLibrary, unresolved
from harness.builder.run_ninja import Ran, run_job
from harness.builder.symbol_classes import (
    OPERATOR_NAME,
    Class,
    classify,
    classify_operator,
    last_part,
    qualified,
)
from harness.builder.toolchain import CUDA_EXTRA, Toolchain
from harness.errors import SandboxError
from harness.records import BinaryCalls, DeviceKernel, Record, Target
from harness.text import clean
from sandboxes.job import Job, Limits, Sandbox
from sandboxes.orphans import owned_folder

_NAMES_KEPT: Final = 100
_NAME_LENGTH: Final = 300
_ALIKE_SHOWN: Final = 3
BY_NAME: Final = " (by name)"


def binary_calls(library: bytes, target: Target, toolchain: Toolchain) -> BinaryCalls | None:
    """The functions that a shared library calls; None if its tables cannot be read.

    Taken from undefined symbols and from operator names in its strings. Not visible are calls from Python,
    dlsym, static libraries, raw system calls, and operator names that are composed at run time.
    """
    try:
        extension = SharedLibrary(library)
        symbols = extension.symbols()
        lacking, unproven = unresolved(extension, target, toolchain)
    except (ElfError, OSError):
        return None
    found: defaultdict[Class, set[str]] = defaultdict(set)
    for name in {qualified(s.name) for s in symbols if not s.defined}:
        kind = classify(name)
        if kind is not None:
            found[kind].add(name)
    if found["dispatcher"]:
        for name in extension.strings(OPERATOR_NAME):
            found[classify_operator(name)].add(name + BY_NAME)
    defined = [s.name for s in symbols if s.defined]
    return BinaryCalls(
        **{kind: _kept(found[kind]) for kind in get_args(Class)},
        unresolved=_kept(_explained(lacking, defined)),
        unproven=unproven,
    )


def _kept(names: Iterable[str]) -> tuple[str, ...]:
    """Sorted and limited: a library may name a hundred thousand functions."""
    ordered = sorted(name[:_NAME_LENGTH] for name in names)
    rest = len(ordered) - _NAMES_KEPT
    return (*ordered[:_NAMES_KEPT], f"and {rest} more") if rest > 0 else tuple(ordered)


def _explained(lacking: Sequence[str], defined: Sequence[str]) -> list[str]:
    """Unresolved symbols, with functions of the same name that the library does define."""
    alike: dict[str, list[str]] = {last_part(name): [] for name in lacking}
    for other in defined if lacking else ():
        found = alike.get(last_part(other))
        if found is not None and len(found) < _ALIKE_SHOWN:
            found.append(other)
    return [_hint(name, alike[last_part(name)]) for name in lacking]


def _hint(name: str, alike: Sequence[str]) -> str:
    text = qualified(name)
    if alike:
        return f"{text}: called as {name}, but defined with other parameters as {' and '.join(alike)}"
    if name.startswith("cu") and name[2:3].isupper() and not name.startswith(("cublas", "cusolver")):
        return f"{text}: the CUDA driver is not linked; ask cudaGetDriverEntryPointByVersion for it"
    if name.startswith("_Z") and not text.startswith(("at::", "c10::", "torch::", "std::")):
        return f"{text}: declared and called, but defined in no file that build.toml lists"
    return text


_SCRIPT: Final = Path(__file__).with_name("cubins.py")
_ANSWER: Final = "kernels.json"
# nvdisasm reads about 60,000 instructions a second on one core: 2 million fit.
_READING_S: Final = 40.0
_LIMITS: Final = Limits(wall_s=60.0, memory_bytes=4 << 30, output_bytes=1 << 16)
_ANSWER_LIMIT: Final = 1 << 20
_LARGEST: Final = 1 << 40


class DeviceCode(NamedTuple):
    """The kernels of one library, and what was not measured."""

    kernels: tuple[DeviceKernel, ...] | None
    """The longest programs first; None if nothing could be measured."""
    notes: tuple[str, ...] = ()


def read_device_code(library: bytes, toolchain: Toolchain, sandbox: Sandbox) -> DeviceCode:
    """Registers, memory and instructions of each kernel, read in the sandbox."""
    if toolchain.disassembler is None:
        return _nothing(f"no cuobjdump and nvdisasm found: {CUDA_EXTRA}")
    try:
        ran, answer = _read(library, toolchain, sandbox)
    except SandboxError as error:
        return _nothing(str(error))
    if answer is None:
        facts = ran.facts
        return _nothing(ran.problem or f"the reader ended with {facts.status}: {facts.output[-200:].strip()}")
    return _validated(answer)


def _nothing(reason: str) -> DeviceCode:
    return DeviceCode(None, (f"compiled kernels not measured: {reason}",))


def _read(library: bytes, toolchain: Toolchain, sandbox: Sandbox) -> tuple[Ran, bytes | None]:
    """Run the reader; its answer if it is complete."""
    scratch, tools = "{scratch}", toolchain.disassembler
    argv = [str(toolchain.python), "-I", "-S", f"{scratch}/{_SCRIPT.name}", f"{tools}/cuobjdump"]
    argv += [f"{tools}/nvdisasm", f"{scratch}/library.so", f"{scratch}/{_ANSWER}", str(_READING_S)]
    with owned_folder("kernels") as name:
        source = Path(name) / "library.so"
        source.write_bytes(library)
        job = Job(
            role="build",
            argv=argv,
            limits=_LIMITS,
            inputs={_SCRIPT.name: _SCRIPT, source.name: source},
            readable=toolchain.readable_tools(),
            environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        )
        ran = run_job(sandbox, job, [_ANSWER], Path(name) / "out")
        small = [p for p in ran.files if ran.facts.status == "ok" and p.stat().st_size <= _ANSWER_LIMIT]
        return ran, small[0].read_bytes() if small else None


class _Answer(Record):
    """The reader's answer; it read hostile bytes, so it may contain anything."""

    kernels: Annotated[tuple[DeviceKernel, ...], Field(max_length=MAX_KERNELS)]
    found: Annotated[int, Field(ge=0, lt=_LARGEST)]
    notes: Annotated[tuple[Annotated[str, Field(max_length=MAX_NAME)], ...], Field(max_length=8)]


def _validated(answer: bytes) -> DeviceCode:
    try:
        read = _Answer.model_validate_json(answer)
    except ValidationError as error:
        return _nothing(f"the reader's answer has {error.error_count()} errors")
    if not all(_is_sane(kernel) for kernel in read.kernels):
        return _nothing("the reader's answer makes no sense")
    if read.notes and not read.kernels:
        return _nothing(_one_line("; ".join(read.notes)))
    notes = [f"compiled kernels: {_one_line(note)}" for note in read.notes]
    if read.found > len(read.kernels):
        notes.append(f"compiled kernels: {read.found} found, the longest {len(read.kernels)} recorded")
    kernels = tuple(k.model_copy(update={"name": _one_line(k.name)}) for k in read.kernels)
    return DeviceCode(kernels, tuple(notes))


def _is_sane(kernel: DeviceKernel) -> bool:
    counts = kernel.instructions or {}
    figures = [kernel.registers, kernel.shared_bytes, kernel.stack_bytes, *counts.values()]
    figures += [f for f in (kernel.spill_store_bytes, kernel.spill_load_bytes) if f is not None]
    sizes = all(0 <= figure < _LARGEST for figure in figures)
    names = 0 < len(kernel.name) <= MAX_NAME and len(kernel.architecture) <= 16
    whole = counts.get("all", 0) == sum(n for name, n in counts.items() if name != "all")
    return sizes and names and whole and set(counts) <= set(CLASSES) and kernel.architecture.isidentifier()


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())
