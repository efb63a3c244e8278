"""The house rules that a machine can check. Sizes are bounded by `make size`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tools.size import LAZY, Module, annotated, length, root_modules, shipped

# Lowest first. A module may import from its own layer and from lower ones.
LAYERS: list[set[str]] = [
    {"outcome", "expressions", "stats", "text"},
    {"errors", "records"},
    {"files", "locks"},
    {"sandboxes", "models"},
    {"suite"},
    {"builder", "student"},
    {"device", "skills"},
    {"judge"},
    {"kernelbench"},
    {"grading"},
    {"study", "fleet"},
    {"report"},
    {"cases", "teaching", "interop", "board"},
    {"cli"},
]
MOST_LAYERS = 14
# Lowered as rooms are cleaned; the bounds of the house are those of `make size`.
MOST_ROOT_MODULES = 6
MOST_INNER_IMPORTS = 15
MOST_FUNCTION_LINES = 73

MODULES = shipped()
NAMES = {module.dotted for module in MODULES}
# They run beside a student's code, or before it in its sandbox.
WORKER = [module for module in MODULES if module.dotted.startswith("harness.worker.")]
INSIDE = [module for module in MODULES if module.path.name in ("inside.py", "outside.py", "reaper.py")]


@pytest.fixture(scope="module", autouse=True)
def parsed() -> None:
    """Every module's tree, which is kept: reading them is no test's own time."""
    for module in MODULES:
        assert module.tree


def _layer(module: str) -> int | None:
    """The layer of `harness.x.y` or `sandboxes.x`; None for the worker and the package itself."""
    if module == "harness" or module.startswith("harness.worker"):
        return None
    top = module.removeprefix("harness.").split(".")[0]
    found = [i for i, names in enumerate(LAYERS) if top in names]
    assert found, f"{module} has no layer: add it to LAYERS"
    return found[0]


def _imports(tree: ast.AST) -> set[str]:
    """Our own modules that are imported; `from package import module` imports the module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in NAMES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("harness", "sandboxes")}


def _imported_at_load(module: Module) -> set[str]:
    """Without imports inside functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in module.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= _imports(ast.Module([node], []))
    return found


def test_imports_point_downwards() -> None:
    """No module imports from a layer above its own; there are at most 14 layers."""
    upward = [
        f"{module.dotted} imports {name}"
        for module in MODULES
        if (own := _layer(module.dotted)) is not None
        for name in _imports(module.tree)
        if (_layer(name) or 0) > own
    ]
    assert upward == []
    assert len(LAYERS) <= MOST_LAYERS


def test_there_is_no_import_circle() -> None:
    """Modules can be put in an order in which each imports only earlier ones."""
    waiting = {module.dotted: _imported_at_load(module) & NAMES - {module.dotted} for module in MODULES}
    while free := {name for name, needs in waiting.items() if not needs & waiting.keys()}:
        waiting = {name: needs for name, needs in waiting.items() if name not in free}
    assert waiting == {}


def test_sizes_only_fall() -> None:
    """Root modules, imports inside functions and the longest function stay within what was reached."""
    inner = {module.name: module.inner_imports for module in MODULES if module.name != LAZY}
    long = {f"{m.name}:{f.name}": length(f) for m in MODULES for f in m.functions}
    assert len(root_modules(MODULES)) <= MOST_ROOT_MODULES
    assert sum(map(len, inner.values())) <= MOST_INNER_IMPORTS, {k: v for k, v in inner.items() if v}
    assert {name: lines for name, lines in long.items() if lines > MOST_FUNCTION_LINES} == {}


def test_everything_is_annotated_and_every_module_has_a_docstring() -> None:
    """Every function has types, and every module a sentence that says what it does."""
    untyped = [f"{m.name}:{f.lineno}" for m in MODULES for f in m.functions if not annotated(f)]
    assert untyped == []
    assert [module.name for module in MODULES if not ast.get_docstring(module.tree)] == []


def test_the_worker_imports_nothing_of_ours() -> None:
    """What runs beside a student's code is the standard library and torch."""
    assert WORKER
    assert INSIDE
    assert {m.name: found for m in [*WORKER, *INSIDE] if (found := _imports(m.tree))} == {}


@pytest.mark.parametrize(
    ("package", "allowed"),
    [("harness.outcome", set()), ("harness.stats", set()), ("harness.records", {"harness.outcome"})],
)
def test_the_lowest_packages_import_nothing_of_ours(package: str, allowed: set[str]) -> None:
    """outcome and stats import only themselves; records import only outcome beside themselves."""
    own = [module for module in MODULES if f"{module.dotted}.".startswith(f"{package}.")]
    assert own
    assert {name for m in own for name in _imports(m.tree) if not name.startswith(package)} <= allowed


def _calls(module: Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_only_cli_and_report_print() -> None:
    """Everything else returns what it has to say."""
    silent = [m for m in MODULES if not m.dotted.startswith(("harness.cli", "harness.report"))]
    assert [m.name for m in silent for called, _ in _calls(m) if called == "print"] == []


# These load a system library by the name or the path in the variable `library`.
_LOADERS = {"harness.device.cuda", "sandboxes.driver"}
_EXECUTING_FORMATS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
_EXECUTING_CALLS = {"exec", "eval", "torch.load", "np.load", "numpy.load", "ctypes.cdll.LoadLibrary"}
# Executes the problem file that the user names, as a task's reference.py is executed.
_ADAPTER = "harness.kernelbench.adapter"


def _executes(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        yield from {name.split(".")[0] for name in names} & _EXECUTING_FORMATS
    for called, call in _calls(module):
        if called in _EXECUTING_CALLS:
            yield called
        elif called.endswith("CDLL"):
            loaded = ast.unparse(call.args[0])
            if loaded != "None" and not (module.dotted in _LOADERS and loaded == "library"):
                yield f"{called}({loaded})"


def test_the_trusted_side_executes_nothing_that_it_reads() -> None:
    """No format that can run code is read, nothing is evaluated, only named system libraries are loaded."""
    inside = {module.dotted for module in [*WORKER, *INSIDE]} | {_ADAPTER}
    trusted = [module for module in MODULES if module.dotted not in inside]
    assert {m.name: found for m in trusted if (found := list(_executes(m)))} == {}
