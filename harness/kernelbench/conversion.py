"""Turns problem files into ordinary tasks, and ModelNew files into ordinary projects.

A converted task is a folder with task.toml and reference.py in the cache. The same problem, converter and
PyTorch give the same bytes, so the task's digest covers the problem's source.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from harness.errors import UsageError
from harness.files import directory_atomically
from harness.kernelbench.isolation import Isolation, in_parallel
from harness.kernelbench.problems import (
    CPU_BYTES,
    ProblemFacts,
    ProblemFile,
    TensorFacts,
    Unfit,
    find_problems,
    is_pattern,
)
from harness.records import Project, ProjectFile
from harness.suite.catalogue import LoadedTask, load_task, select_tasks

OP = "forward"
WORKLOAD = "kernelbench"
SCALED = "kernelbench_scaled"
_VERSION = "3"
"""Part of every cache key: raise it if the same file may be converted differently."""
_FACTS = "facts.json"
_MOST_PLAN_BYTES = 60_000
"""Of the message that announces a plan to a worker, which is limited to 64 KiB."""
_PLAN_ENTRY_BYTES = 130
_MOST_BYTES = 1 << 20
_MODEL_NEW = re.compile(r"^(?:class ModelNew\b|ModelNew[ \t]*=|from .+\bModelNew\b)", re.M)
_ADAPTER = Path(__file__).with_name("adapter.py")
_MARKER = "# --- filled in by the conversion"
_PACKAGE = Path(__file__).with_name("submission_package.py")
_BUILD_TOML = """\
[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""


@dataclass(frozen=True)
class Converted:
    """A problem with the task made from it, or the reason why there is none."""

    problem: ProblemFile
    loaded: LoadedTask | None = None
    facts: ProblemFacts | None = None
    refusal: str | None = None

    def task(self) -> LoadedTask:
        """The task. Raises UsageError if there is none."""
        if self.loaded is None:
            raise UsageError(f"{self.problem.path} cannot be a task: {self.refusal}")
        return self.loaded


def select_with_problems(patterns: Sequence[str], root: Path | None = None) -> list[LoadedTask]:
    """`select_tasks` that also knows `kernelbench:PATH...`; problems need not be admitted. UsageError."""
    theirs = [pattern for pattern in patterns if is_pattern(pattern)]
    ours = [pattern for pattern in patterns if not is_pattern(pattern)]
    chosen = {t.task.id: t for t in (select_tasks(ours, root) if ours or not theirs else [])}
    for pattern in theirs:
        converted = convert_pattern(pattern)
        found = [one.loaded for one in converted if one.loaded is not None]
        chosen.update({t.task.id: t for t in found or [converted[0].task()]})
    return [chosen[key] for key in sorted(chosen)]


def convert_pattern(pattern: str, cache: Path | None = None) -> list[Converted]:
    """Convert all problems that `kernelbench:PATH[/level1][/glob]` names, in parallel and cached.

    Raises UsageError if there are none.
    """
    folder = cache or Path(platformdirs.user_cache_dir("liftbench"))
    return in_parallel(find_problems(pattern), lambda problem, isolation: convert(problem, folder, isolation))


def convert(problem: ProblemFile, cache: Path, isolation: Isolation) -> Converted:
    """Inspect and convert one problem, or load it from the cache. UsageError for an unreadable file."""
    source = _read(problem.path)
    # The folder is named by everything that the conversion depends on.
    parts = (_VERSION, importlib.metadata.version("torch"), _ADAPTER.read_text(), problem.id, source)
    folder = cache / "kernelbench" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    if (folder / _FACTS).is_file():
        facts = ProblemFacts.model_validate_json((folder / _FACTS).read_text())
        return Converted(problem, load_task(folder / problem.id), facts)
    try:
        facts = ProblemFacts.model_validate(isolation.ask("inspect", path=str(problem.path.resolve())))
        if sum(_PLAN_ENTRY_BYTES + len(t.name) for t in facts.tensors) > _MOST_PLAN_BYTES:
            raise Unfit(f"its {len(facts.tensors)} operands are more than one plan message holds")
    except Unfit as refused:
        return Converted(problem, refusal=str(refused))
    return Converted(problem, _write(problem, source, facts, folder), facts)


def _read(path: Path) -> str:
    """The text of a problem or ModelNew file. Raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as text: {error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path} is larger than 1 MiB")
    return text


def _write(problem: ProblemFile, source: str, facts: ProblemFacts, folder: Path) -> LoadedTask:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with directory_atomically(folder) as scratch:
            scratch.chmod(0o755)  # a reference runs as another user
            task = scratch / problem.id
            task.mkdir(parents=True)
            (task / "task.toml").write_text(task_toml(problem, source, facts))
            (task / "reference.py").write_text(reference_py(source, facts))
            (scratch / _FACTS).write_text(facts.model_dump_json())
            load_task(task)  # an invalid task is our own error, raised before anything is kept
    except OSError:
        if not (folder / _FACTS).is_file():  # another process wrote the same folder first
            raise
    return load_task(folder / problem.id)


def _filled_in(template: Path, lines: str) -> str:
    """A template module with the lines between its two markers replaced."""
    head, rest = template.read_text().split(_MARKER)  # ValueError without it
    _, body = rest.split("# --- end")
    return f"{head}{lines}# --- end{body}"


def reference_py(source: str, facts: ProblemFacts) -> str:
    """adapter.py, filled in."""
    rows = None if facts.rows is None else (facts.rows.rows, facts.rows.draws)
    lines = (
        f"{_MARKER}\n"
        f"_SOURCE = {source!r}\n"
        f"_DIGEST = {hashlib.sha256(source.encode()).hexdigest()!r}\n"
        f"_ARGUMENTS: tuple[str, ...] = {facts.arguments!r}\n"
        f"_STATE: dict[str, str] = { {t.name: t.state for t in facts.parameters}!r}\n"
        f"_ROWS: tuple[int, tuple[int, ...]] | None = {rows!r}\n"
        f"_WIDE = {facts.wide!r}\n"
    )
    return _filled_in(_ADAPTER, lines)


def _operand(tensor: TensorFacts, facts: ProblemFacts, role: str, *, by_name: bool = False) -> str:
    dtype = "" if tensor.dtype == "float32" else f'dtype = "{tensor.dtype}"\n'
    axes = [str(axis) for axis in tensor.shape]
    shape = json.dumps(["rows", *axes[1:]] if facts.scales(tensor) else axes)
    named = "keyword = true\n" if by_name else ""
    return f'[[operand]]\nname = "{tensor.name}"\nrole = "{role}"\nshape = {shape}\n{dtype}{named}'


def task_toml(problem: ProblemFile, source: str, facts: ProblemFacts) -> str:
    number, _, words = problem.path.stem.partition("_")
    title = f"KernelBench {problem.level.partition('_')[2]} {number}: {words.replace('_', ' ').strip()}"
    texts = {
        "family": f"{problem.level}_{'convolution' if facts.convolves else facts.kind}",
        "title": title,
        "op": OP,
        "package": f"kernelbench-{problem.name.replace('_', '-')}",
        "tolerance": facts.kind,
        # PyTorch's convolutions round to TF32 on a GPU unless told otherwise, and the reference is PyTorch.
        "precision": "tf32" if facts.convolves else "strict",
        "also": "kernelbench",
        "semantics": semantics(source, facts),
    }
    # JSON does not escape one of TOML's control characters.
    quoted = {k: json.dumps(v, ensure_ascii=False).replace("\x7f", "\\u007f") for k, v in texts.items()}
    head = "".join(f"{key} = {value}\n" for key, value in quoted.items())
    rows = facts.rows
    flops = _by_rows(facts.flops, 0 if rows is None else rows.flops, facts)
    # Values are the problem's own: rearranged, a triangular matrix or a mask would be none.
    head += "version = 1\nvalues = []\n" + (f'flops = "{flops}"\n' if facts.flops else "")
    dtypes = '[dtypes]\ncpu = ["float32"]\ncuda = ["float32"]\n'
    operands = [_operand(t, facts, "out") for t in facts.outputs]
    operands += [_operand(t, facts, "in") for t in facts.inputs]
    operands += [_operand(t, facts, "in", by_name=True) for t in facts.parameters]
    scalars = [f'[[scalar]]\nname = "{s.name}"\ntype = "{s.type}"\n' for s in facts.scalars]
    return "\n".join([head, dtypes, _parts(facts), *operands, *scalars, *_workloads(facts)])


def _by_rows(whole: int, each: int, facts: ProblemFacts) -> str:
    """A count that grows by `each` per row, as an expression over dims."""
    if facts.rows is None or each == 0:
        return str(whole)
    return f"{each} * rows + {max(0, whole - each * facts.rows.rows)}"


def _parts(facts: ProblemFacts) -> str:
    """How it is judged in parts; empty if the CPU target can judge it whole."""
    if facts.judged_bytes() <= CPU_BYTES:
        return ""
    rows = facts.rows
    live = _by_rows(facts.peak_bytes, 0 if rows is None else rows.peak_bytes, facts)
    apart = rows is not None and rows.apart is not False
    return f'[parts]\nrows = {json.dumps(rows.inputs if rows and apart else [])}\nlive = "{live}"\n'


def _workloads(facts: ProblemFacts) -> list[str]:
    """The problem's own sizes, and smaller ones for the CPU target if it cannot judge those."""
    given = ", ".join(f"{s.name} = {json.dumps(s.value)}" for s in facts.scalars)
    rest = f"scalars = {{ {given} }}\ntimed = true\n"
    if facts.rows is None:
        return [f'[[workload]]\nname = "{WORKLOAD}"\ndims = {{}}\n{rest}']
    own, small = facts.rows.rows, facts.cpu_rows
    full = f'[[workload]]\nname = "{WORKLOAD}"\ndims = {{ rows = {own} }}\n{rest}'
    if small is None:
        return [full]
    scaled = f'[[workload]]\nname = "{SCALED}"\ndims = {{ rows = {small} }}\n{rest}scaled_from = {own}\n'
    return [f'{full}target = "cuda"\n', f'{scaled}target = "cpu"\n']


def semantics(source: str, facts: ProblemFacts) -> str:
    """What the student reads: the module, how it is made, and what its operands are."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", source)), default=0))
    outputs = " and ".join(f"`{t.name}`" for t in facts.outputs)
    arguments = ", ".join(facts.arguments)
    lines = [
        f"{outputs}: what `Model(*{facts.init})({arguments})` of the module below returns. It is in training "
        "mode, as its constructor leaves it; no gradient is wanted. Inputs are drawn as `get_inputs` draws "
        "them, the parameters as the constructor initialises them, both afresh for every call.",
    ]
    if facts.parameters:
        renamed = [f"`{t.name}` is `{t.state}`" for t in facts.parameters if t.name.startswith("param__")]
        lines.append(
            "Its parameters and buffers are keyword arguments, with `__` for the dots in their names"
            + (f"; {', '.join(renamed)}" if renamed else "")
            + "."
        )
    if facts.batch_statistics:
        lines.append(
            "Batch normalisation is over the batch at hand. The running statistics that the module would "
            "update are neither passed nor wanted."
        )
    if facts.cpu_rows is not None and facts.rows is not None:
        names = " and ".join(f"`{name}`" for name in (*facts.rows.inputs, *facts.rows.outputs))
        lines.append(
            f"On the CPU target the first axis of {names} has {facts.cpu_rows} elements instead of "
            f"{facts.rows.rows}: `rows` below."
        )
    if facts.wide:
        lines.append("Inputs that `torch.rand` draws below are drawn from (-3, 3] instead of [0, 1).")
    return "\n\n".join([*lines, f"{fence}python\n{source.strip()}\n{fence}"])


def read_submission(path: Path) -> str:
    """The text of a KernelBench answer. Raises UsageError if it does not define ModelNew."""
    text = _read(path)
    if not _MODEL_NEW.search(text):
        raise UsageError(
            f"{path} defines no class ModelNew, as KernelBench's answers do; "
            "a kernel-builder project is graded by its folder"
        )
    return text


def wrapped(text: str, converted: Converted) -> Project:
    """A universal kernel-builder project around a ModelNew file, which it holds byte for byte.

    Raises UsageError for a refused problem.
    """
    task = converted.task().task
    facts = converted.facts
    assert facts is not None  # set with the task
    lines = (
        f"# --- the names of {task.id}\n"
        f"_ARGUMENTS = {facts.arguments!r}\n"
        f"_STATE = { {t.name: t.state for t in facts.parameters}!r}\n"
        f"_OUTPUTS = {len(facts.outputs)}\n"
    )
    package = f"torch-ext/{task.module}"
    files = {
        "build.toml": _BUILD_TOML.format(name=task.package),
        f"{package}/__init__.py": _filled_in(_PACKAGE, lines),
        f"{package}/problem.py": converted.problem.path.read_text(),
        f"{package}/submission.py": text,
    }
    return Project(files=tuple(ProjectFile(path=path, text=files[path]) for path in sorted(files)))
