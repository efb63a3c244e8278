"""Compiled kernels, traces, sanitizers, provenance and physical limits in words.

What a process claims about itself is marked as its claim; what was not measured says so.
"""

from __future__ import annotations

from harness.builder.cubins import CLASSES
from harness.records import (
    DeviceKernel,
    EmulatedCheck,
    Evidence,
    Grade,
    KernelBenchScore,
    Provenance,
    SanitizerRun,
    WorkloadTiming,
)
from harness.report.figures import NOT_MEASURED, percent
from harness.text import clean, shorten

_NAME_CHARS = 48
_NAMED_CALLS = 4
_LINE_CHARS = 120
# Tensor cores, asynchronous copies, then what costs: in the order of the output.
_NAMED = (
    "HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "QMMA", "IMMA", "BMMA", "DMMA",
    "TMA", "LDGSTS", "LDSM", "STSM", "ATOM", "DFMA", "LDL", "STL",
)  # fmt: skip


def short_name(name: str) -> str:
    """`void (anonymous namespace)::f<float, 4>(float*)` -> `f<float, 4>`."""
    text = clean(name).replace("(anonymous namespace)::", "")
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth == 0 and position > 0:
            text = text[:position]
            break
    return shorten(text.removeprefix("void "), _NAME_CHARS)


def spills(kernel: DeviceKernel) -> str:
    """Bytes stored / loaded per thread: `656 / 772 B`, or `none`."""
    stored, loaded = kernel.spill_store_bytes, kernel.spill_load_bytes
    if stored is None or loaded is None:
        return NOT_MEASURED
    return f"{stored} / {loaded} B" if stored or loaded else "none"


def _share_128(counts: dict[str, int], opcode: str) -> list[str]:
    total = sum(n for name, n in counts.items() if name.startswith(f"{opcode}."))
    return [f"{opcode}.128 {percent(counts.get(f'{opcode}.128', 0) / total)}"] if total else []


def notable(kernel: DeviceKernel) -> str:
    """Such as `HGMMA 12, TMA 8, LDG.128 75%`: the share of global loads that are 128 bits wide."""
    counts = kernel.instructions
    if counts is None:
        return NOT_MEASURED
    named = [f"{name} {counts[name]}" for name in _NAMED if counts.get(name)]
    return ", ".join([*named, *_share_128(counts, "LDG"), *_share_128(counts, "STG")])


def total(kernel: DeviceKernel) -> str:
    return NOT_MEASURED if kernel.instructions is None else str(kernel.instructions.get("all", 0))


def all_counts(kernel: DeviceKernel) -> str:
    counts = kernel.instructions or {}
    return ", ".join(f"{name} {counts[name]}" for name in CLASSES if counts.get(name))


def emulated_lines(emulated: EmulatedCheck | None) -> list[str]:
    """The check on the emulated GPU, in one cleaned line."""
    if emulated is None:
        return []
    return [clean(f"on the emulated GPU: {emulated.outcome}: {emulated.message}")]


def evidence_lines(grade: Grade) -> list[str]:
    """Trace, sanitizers, provenance, KernelBench score and limits, one cleaned line each."""
    lines = [] if grade.evidence is None else _trace(grade.evidence)
    lines += _sanitizers(grade.sanitizers)
    lines += [] if grade.provenance is None else _provenance(grade.provenance)
    lines += [] if grade.kernelbench is None else [_kernelbench(grade.kernelbench)]
    timings = () if grade.timing is None else grade.timing.workloads
    return [clean(line) for line in (*lines, *filter(None, map(limit_line, timings)))]


def _provenance(found: Provenance) -> list[str]:
    """Where the source was copied from; nothing for a few common lines."""
    origin = found.origin
    if origin is None or not found.evident:
        return []
    return [
        f"{found.common} of its {found.rows} token n-grams ({percent(found.share)}) are in kernels_ref, "
        f"{origin.rows} of them in {origin.task}/{origin.file}; longest match {origin.longest} tokens, at "
        f"{origin.project_file}:{origin.project_line} (line {origin.source_line} of the source)"
    ]


def _kernelbench(found: KernelBenchScore) -> str:
    """The score by KernelBench's own rules, with its basis."""
    score = f"by KernelBench's own rules: {found.passed} of {found.trials} trials at {found.tolerance:g}"
    if found.message is not None:
        return f"{score}: {shorten(found.message, _LINE_CHARS)}"
    if found.speedup is None or found.claimed_us is None or found.eager_us is None:
        return f"{score}, {'correct, not timed' if found.correct else 'not correct'}"
    return (
        f"{score}, {found.speedup:.2f}x eager as claimed by the process "
        f"(mean of {found.calls} calls: {found.claimed_us:.1f} us, eager {found.eager_us:.1f} us)"
    )


def _some(names: list[str]) -> str:
    more = f", and {len(names) - _NAMED_CALLS} more" if len(names) > _NAMED_CALLS else ""
    return ", ".join(names[:_NAMED_CALLS]) + more


def _trace(evidence: Evidence) -> list[str]:
    label = f"{evidence.workload} {evidence.dtype}"
    if evidence.operators is None:
        return [f"one call on {label}: not traced: {shorten(evidence.trouble or '', _LINE_CHARS)}"]
    lines = []
    for kind, words in (("own", "own operators"), ("compute", "PyTorch operators that compute")):
        own = [o for o in evidence.operators if o.kind == kind]
        found = [o.name if o.calls == 1 else f"{o.calls} x {o.name}" for o in own]
        lines.append(f"{words} {_some(found)}" if found else f"no {words}")
    rest = sum(o.calls for o in evidence.operators if o.kind == "harmless")
    lines += [f"{rest} harmless ones"] if rest else []
    traced = [f"one call on {label}, as claimed by the process: {'; '.join(lines)}"]
    if evidence.traced_right is False:
        traced.append("the traced call's outputs were wrong, although the check's were right")
    if evidence.loads:
        traced.append(f"its Python loads code at run time: {_some(list(evidence.loads))}")
    return [*traced, *_kernels(evidence), *evidence.notes]


def _kernels(evidence: Evidence) -> list[str]:
    if evidence.kernels is None:
        return []
    others = [short_name(k.name) for k in evidence.kernels if k.own is False]
    share = evidence.own_share
    words = "share in its own kernels not known" if share is None else f"{percent(share)} in its own kernels"
    copies = sum(k.launches for k in evidence.kernels if k.copy_or_fill)
    line = f"device time: {words}; {evidence.launches} launches a call, {copies} copies and fills"
    return [f"{line}; not its own: {_some(others)}" if others else line]


def _sanitizers(runs: tuple[SanitizerRun, ...]) -> list[str]:
    """Tools with the same outcome share a line."""
    by_outcome: dict[str, list[str]] = {}
    for run in runs:
        by_outcome.setdefault(_outcome(run), []).append(run.tool)
    return [f"{', '.join(tools)}: {outcome}" for outcome, tools in by_outcome.items()]


def _outcome(run: SanitizerRun) -> str:
    status = run.status.replace("_", " ")
    if run.findings:
        first = run.findings[0]
        where = f" in {short_name(first.kernel)}" if first.kernel else ""
        count = run.total if run.total is not None else sum(f.count for f in run.findings)
        return f"{status}: {count}, first: {shorten(first.message, _LINE_CHARS)}{where}"
    return status + (f": {shorten(run.message, _LINE_CHARS)}" if run.message else "")


def limit_line(timing: WorkloadTiming) -> str | None:
    """Such as `square float32: 93% of the limit (memory, H200 SXM), S 0.92`; None where none is known."""
    limit = timing.physics
    if limit is None:
        return None
    label = f"{timing.workload} {timing.dtype}"
    words = [f"{label}: {percent(limit.fraction)} of the limit ({limit.bound_by}, {limit.board})"]
    if limit.measured_limit_us is not None:
        words.append(
            f"{percent(limit.measured_limit_us / limit.time_us)} of what this board was measured to do"
        )
    words += [] if limit.score is None else [f"S {limit.score:.2f}"]
    return ", ".join((*words, *limit.flags))
