"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Lowest first. A module may import from its own group and from lower ones.
LAYERS: list[set[str]] = [
    {"outcome", "expressions", "stats", "fences", "text"},
    {"errors", "records"},
    {"files", "locks", "storage"},
    {"sandboxes", "models"},
    {"suite"},
    {"builder", "student"},
    {"device", "skills"},
    {"judge"},
    {"kernelbench"},
    {"grading"},
    {"study"},
    {"report"},
    {"cases", "teaching"},
    {"cli"},
]


# Runs beside a student's code.
_BESIDE_A_STUDENT = tuple(
    f"harness.worker.{path.stem}" for path in sorted((ROOT / "harness/worker").glob("*.py"))
)


def _layer(module: str) -> int | None:
    """The layer of `harness.x.y` or `sandboxes.x`; None for what is outside or the package itself."""
    name = module.removeprefix("harness.")
    if module == "harness" or module.startswith("harness.worker"):
        return None
    found = [i for i, names in enumerate(LAYERS) if name.split(".")[0] in names]
    assert found, f"{module} has no layer: add it to LAYERS"
    return found[0]


def _exists(module: str) -> bool:
    base = ROOT / Path(*module.split("."))
    return base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            # `from package import module` is an import of the module, not of the whole package.
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if _exists(submodule) else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("harness", "sandboxes")}


def _modules() -> list[Path]:
    return sorted(
        p for top in ("harness", "sandboxes") for p in (ROOT / top).rglob("*.py") if "_data" not in p.parts
    )


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_imports_point_downwards(path: Path) -> None:
    """No module imports from a layer above its own."""
    own = _layer(_name(path))
    if own is None:
        return
    upward = [name for name in _imports(path) if (_layer(name) or 0) > own]
    assert upward == []


def test_the_worker_imports_nothing_of_ours() -> None:
    """What runs beside a student's code is the standard library and torch."""
    for module in _BESIDE_A_STUDENT:
        assert _imports(ROOT / f"{module.replace('.', '/')}.py") == set()
    for name in ("inside.py", "outside.py", "minder.py"):
        assert _imports(ROOT / "sandboxes" / name) == set()


def test_the_lowest_modules_import_nothing_of_ours() -> None:
    """records, outcome and stats stand on nothing but each other."""
    assert _imports(ROOT / "harness" / "outcome.py") == set()
    of_stats = {name for path in (ROOT / "harness/stats").glob("*.py") for name in _imports(path)}
    assert {n for n in of_stats if not n.startswith("harness.stats")} == set()
    of_records = {name for path in (ROOT / "harness/records").glob("*.py") for name in _imports(path)}
    assert {n for n in of_records if not n.startswith("harness.records")} == {"harness.outcome"}


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_only_cli_and_report_print(path: Path) -> None:
    """Everything else returns what it has to say."""
    if _name(path).startswith(("harness.cli", "harness.report")):
        return
    calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
    assert not any(isinstance(c.func, ast.Name) and c.func.id == "print" for c in calls)


# Modules that run inside a sandbox, or before it: what they execute is ours, or the job itself.
# The adapter executes the problem file that the user names, as a task's reference.py is executed.
_INSIDE = (*_BESIDE_A_STUDENT, "sandboxes.inside", "sandboxes.outside", "harness.kernelbench.adapter")
# Who loads a system library by name, and by which variable: NVML, NVIDIA's driver, OpenSSL's libcrypto.
_LOADERS = {"sandboxes.nvml", "harness.device.cuda.driver", "harness.judge.chacha"}
_EXECUTING_FORMATS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_the_trusted_side_executes_nothing_that_it_reads(path: Path) -> None:
    """No format that can run code is read, nothing is evaluated, only named system libraries are loaded."""
    if _name(path) in _INSIDE:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        assert not {name.split(".")[0] for name in names} & _EXECUTING_FORMATS
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        assert called not in (
            "exec",
            "eval",
            "torch.load",
            "np.load",
            "numpy.load",
            "ctypes.cdll.LoadLibrary",
        )
        if called.endswith("CDLL"):
            loaded = ast.unparse(node.args[0])
            assert loaded == "None" or (_name(path) in _LOADERS and loaded == "library")


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_every_module_says_what_it_owns(path: Path) -> None:
    """A module docstring stands first."""
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=" ".join
)
def test_the_linters_are_content(command: list[str]) -> None:
    """ruff and mypy --strict find nothing."""
    tool = Path(sys.executable).with_name(command[0])
    if not tool.exists() and shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (pip install 'liftbench[dev]')")
    program = str(tool) if tool.exists() else command[0]
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
