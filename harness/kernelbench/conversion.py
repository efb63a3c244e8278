"""From a problem file to an ordinary task: `task.toml` and `reference.py` in the cache.

The folder is a task like any other, complete when it appears; the same file, converter and PyTorch give the
same bytes, so the task's digest covers the problem's source.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.files import directory_atomically, write_atomically
from harness.kernelbench.checkout import ProblemFile, find_problems, is_pattern
from harness.kernelbench.facts import CPU_BYTES, ProblemFacts, TensorFacts
from harness.kernelbench.isolation import Isolation, Refused, in_parallel
from harness.records import Task
from harness.suite.catalogue import LoadedTask, load_task, select_tasks

OP = "forward"
WORKLOAD = "kernelbench"
SCALED = "kernelbench_scaled"
_VERSION = "2"
"""Part of every cache key: raise it when the same file may be converted differently."""
_FACTS = "facts.json"
_MOST_PLAN_BYTES = 60_000
"""Of the message that announces a plan to a worker, which takes 64 KiB: about 100 for each operand, and more
for long names."""
_PLAN_ENTRY_BYTES = 130


@dataclass(frozen=True)
class Converted:
    """A problem, and the task that came of it; or why none did."""

    problem: ProblemFile
    loaded: LoadedTask | None = None
    facts: ProblemFacts | None = None
    refusal: str | None = None

    def task(self) -> LoadedTask:
        """The task. Raises UsageError where there is none."""
        if self.loaded is None:
            raise UsageError(f"{self.problem.path} cannot be a task: {self.refusal}")
        return self.loaded


def default_cache() -> Path:
    """The user's cache folder, as the command line's."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("liftbench"))


def convert_pattern(pattern: str, cache: Path | None = None) -> list[Converted]:
    """Everything that `kernelbench:PATH[/level1][/glob]` names. Raises UsageError where that is nothing."""
    return convert_all(find_problems(pattern), default_cache() if cache is None else cache)


def convert_all(
    problems: Sequence[ProblemFile], cache: Path, observer: Callable[[Converted], None] = lambda one: None
) -> list[Converted]:
    """Every problem, over the cores; what was converted before comes from the cache."""
    found: dict[Path, Converted] = {}
    owed: list[ProblemFile] = []
    for problem in problems:
        known = _cached(problem, cache)
        if known is None:
            owed.append(problem)
        else:
            found[problem.path] = known
            observer(known)

    def work(problem: ProblemFile, isolation: Isolation) -> Converted:
        made = convert(problem, cache, isolation)
        observer(made)
        return made

    found |= {one.problem.path: one for one in in_parallel(owed, work)}
    return [found[problem.path] for problem in problems]


def convert(problem: ProblemFile, cache: Path, isolation: Isolation) -> Converted:
    """One problem: inspected, converted and kept. Raises UsageError for a file that cannot be read."""
    source = _source(problem)
    try:
        facts = ProblemFacts.model_validate(isolation.ask("inspect", path=str(problem.path.resolve())))
        _check_plan(facts)
    except Refused as refused:
        if refused.unfit or refused.missing is not None:
            _keep_refusal(_folder(problem, source, cache), refused)
        return Converted(problem, refusal=str(refused))
    return Converted(problem, _write(problem, source, facts, _folder(problem, source, cache)), facts)


def state_names(task: Task, facts: ProblemFacts) -> dict[str, str]:
    """Operand -> name in the module's state_dict, of every operand that is passed by name."""
    by_name = {t.name: t.state for t in facts.parameters}
    return {o.name: by_name[o.name] or o.name for o in task.operands if o.keyword}


def _check_plan(facts: ProblemFacts) -> None:
    tensors = (*facts.inputs, *facts.parameters, *facts.outputs)
    size = sum(_PLAN_ENTRY_BYTES + len(t.name) for t in tensors)
    if size > _MOST_PLAN_BYTES:
        raise Refused(f"its {len(tensors)} operands are more than one plan message holds")


# --- the cache -------------------------------------------------------------------------------


def _source(problem: ProblemFile) -> str:
    try:
        return problem.path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{problem.path} cannot be read: {error}") from error


def _adapter() -> str:
    return Path(__file__).with_name("adapter.py").read_text()


def _folder(problem: ProblemFile, source: str, cache: Path) -> Path:
    """Where the conversion is kept: named by everything that it depends on."""
    parts = (_VERSION, importlib.metadata.version("torch"), _adapter(), problem.id, source)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cache / "kernelbench" / key


def _cached(problem: ProblemFile, cache: Path) -> Converted | None:
    folder = _folder(problem, _source(problem), cache)
    if not (folder / _FACTS).is_file():
        reason = _kept_refusal(folder)
        return None if reason is None else Converted(problem, refusal=reason)
    facts = ProblemFacts.model_validate_json((folder / _FACTS).read_text())
    return Converted(problem, load_task(folder / problem.id), facts)


def _keep_refusal(folder: Path, refused: Refused) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"reason": str(refused), "missing": refused.missing})
    write_atomically(folder.with_suffix(".refused"), text)


def _kept_refusal(folder: Path) -> str | None:
    """Why it was refused before; None where it was not, or where the module that it needs is there now."""
    file = folder.with_suffix(".refused")
    if not file.is_file():
        return None
    kept = json.loads(file.read_text())
    missing = kept["missing"]
    if missing is not None and importlib.util.find_spec(missing.partition(".")[0]) is not None:
        return None
    return str(kept["reason"])


def _write(problem: ProblemFile, source: str, facts: ProblemFacts, folder: Path) -> LoadedTask:
    """The folder appears whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with directory_atomically(folder) as scratch:
            scratch.chmod(0o755)  # a reference runs as another user
            task = scratch / problem.id
            task.mkdir(parents=True)
            (task / "task.toml").write_text(task_toml(problem, source, facts))
            (task / "reference.py").write_text(reference_py(source, facts))
            (scratch / _FACTS).write_text(facts.model_dump_json())
            load_task(task)  # a fault of ours is told before anything is kept
    except OSError:
        if not (folder / _FACTS).is_file():  # else somebody else was first
            raise
    return load_task(folder / problem.id)


# --- the files -------------------------------------------------------------------------------


def reference_py(source: str, facts: ProblemFacts) -> str:
    """adapter.py, filled in."""
    head, _, rest = _adapter().partition("# --- filled in by the conversion")
    _, _, body = rest.partition("# --- end")
    rows = None if facts.rows is None else (facts.rows.rows, facts.rows.draws)
    filled = (
        f"_SOURCE = {source!r}\n"
        f"_DIGEST = {hashlib.sha256(source.encode()).hexdigest()!r}\n"
        f"_ARGUMENTS: tuple[str, ...] = {facts.arguments!r}\n"
        f"_STATE: dict[str, str] = { {t.name: t.state for t in facts.parameters}!r}\n"
        f"_ROWS: tuple[int, tuple[int, ...]] | None = {rows!r}\n"
        f"_WIDE = {facts.wide!r}\n"
    )
    return f"{head}# --- filled in by the conversion{'-' * 61}\n{filled}# --- end{body}"


def _operand(tensor: TensorFacts, facts: ProblemFacts, role: str, *, by_name: bool = False) -> str:
    dtype = "" if tensor.dtype == "float32" else f'dtype = "{tensor.dtype}"\n'
    axes = [str(axis) for axis in tensor.shape]
    shape = json.dumps(["rows", *axes[1:]] if facts.scales(tensor) else axes)
    named = "keyword = true\n" if by_name else ""
    return f'[[operand]]\nname = "{tensor.name}"\nrole = "{role}"\nshape = {shape}\n{dtype}{named}'


def _family(problem: ProblemFile, facts: ProblemFacts) -> str:
    """Problems of a level that lean on the same kind of work are related."""
    return f"{problem.level}_{'convolution' if facts.convolves else facts.kind}"


def task_toml(problem: ProblemFile, source: str, facts: ProblemFacts) -> str:
    """The task's description."""
    number, _, words = problem.path.stem.partition("_")
    title = f"KernelBench {problem.level.partition('_')[2]} {number}: {words.replace('_', ' ').strip()}"
    texts = {
        "family": _family(problem, facts),
        "title": title,
        "op": OP,
        "package": f"kernelbench-{problem.name.replace('_', '-')}",
        "tolerance": facts.kind,
        # PyTorch's convolutions round to TF32 on a GPU unless told otherwise, and the reference is PyTorch.
        "precision": "tf32" if facts.convolves else "strict",
        "also": "kernelbench",
        "semantics": semantics(source, facts),
    }
    head = "".join(f"{key} = {_text(value)}\n" for key, value in texts.items())
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
    """A count that grows by `each` with every row, as an expression over dims."""
    if facts.rows is None or each == 0:
        return str(whole)
    return f"{each} * rows + {max(0, whole - each * facts.rows.rows)}"


def _parts(facts: ProblemFacts) -> str:
    """How it is judged where it is too large to be judged whole: of what the CPU target takes, nowhere."""
    if facts.judged_bytes() <= CPU_BYTES:
        return ""
    rows = facts.rows
    live = _by_rows(facts.peak_bytes, 0 if rows is None else rows.peak_bytes, facts)
    apart = rows is not None and rows.apart is not False
    return f'[parts]\nrows = {json.dumps(rows.inputs if rows and apart else [])}\nlive = "{live}"\n'


def _workloads(facts: ProblemFacts) -> list[str]:
    """The problem's own sizes; for the CPU target smaller ones, where it does not take these."""
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


def _text(value: str) -> str:
    """A basic string of TOML; JSON leaves one control character as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def semantics(source: str, facts: ProblemFacts) -> str:
    """What the student reads: the module, how it is made, and what its operands are."""
    fence = "`" * max(3, 1 + max((len(run) for run in _ticks(source)), default=0))
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


def _ticks(text: str) -> list[str]:
    """Runs of backticks."""
    return [run for run in "".join(c if c == "`" else " " for c in text).split() if run]


__all__ = ["Converted", "convert", "convert_all", "convert_pattern", "default_cache", "state_names"]


def select_with_problems(patterns: Sequence[str], root: Path | None = None) -> list[LoadedTask]:
    """`select_tasks`, where `kernelbench:PATH...` names problems too (all that can be converted, admitted or
    not). Raises UsageError."""
    theirs = [pattern for pattern in patterns if is_pattern(pattern)]
    ours = [pattern for pattern in patterns if not is_pattern(pattern)]
    chosen = {t.task.id: t for t in (select_tasks(ours, root) if ours or not theirs else [])}
    for pattern in theirs:
        converted = convert_pattern(pattern)
        found = [one.loaded for one in converted if one.loaded is not None]
        chosen.update({t.task.id: t for t in found or [converted[0].task()]})
    return [chosen[key] for key in sorted(chosen)]
