"""Checks of a project that need no compiler: paths, listed files, dependencies, Python and bindings."""

from __future__ import annotations

import importlib.util
import json
import posixpath
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from harness.builder.build_toml import Unparsable, ask
from harness.builder.schema import BuildToml, General
from harness.outcome import Cause
from harness.records import BINDING_WARNING, Finding, Project

GENERATED_HEADER: Final = "torch-ext/registration.h"
_SHELL_SAFE = re.compile(r"[\w.+@,=/-]+", re.A)  # nvcc runs its steps through a shell of its own
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PATH_SHOWN: Final = 200
_NAME_BYTES: Final = 255  # NAME_MAX of Linux
# kernel-builder writes these files and stops if they are already there.
_WRITTEN: Final = frozenset({GENERATED_HEADER, "CMakeLists.txt", "pyproject.toml", "setup.py"})


class Refused(Exception):
    """The project cannot be built; `finding` says why."""

    def __init__(self, message: str, cause: Cause = Cause.BAD_LAYOUT) -> None:
        super().__init__(message)
        self.finding = Finding(cause=cause, message=message)


# --- paths -----------------------------------------------------------------------------------


def shown(path: str) -> str:
    """A path for a message: quoted, control characters escaped, length limited."""
    text = path if len(path) <= _PATH_SHOWN else f"{path[:_PATH_SHOWN]}..."
    return f'"{text}"' if _CONTROL.search(text) is None else repr(text)


def _normalized(path: str, where: str) -> str:
    """`path` without `./`, `//` and `x/..`. Raises Refused if it leaves the project."""
    if _CONTROL.search(path):
        raise Refused(f"{where}: {shown(path)} has control characters")
    normal = posixpath.normpath(path)
    if path.startswith("/") or normal == ".." or normal.startswith("../"):
        raise Refused(f"{where}: {shown(path)} must be relative and stay inside the project")
    return normal


def check_shell_safe(path: str, where: str) -> None:
    """Raises Refused for a path that must not reach a compiler's command line."""
    if not _SHELL_SAFE.fullmatch(path):
        raise Refused(f"{where}: {shown(path)} has characters other than letters, digits and ._+@,=-/")


def check_tree(paths: Iterable[str]) -> None:
    """Raises Refused for what no file system can hold: a file that is also a folder, a name too long."""
    every = set(paths)
    for path in sorted(every):
        for end in (i for i, character in enumerate(path) if character == "/"):
            if path[:end] in every:
                raise Refused(f"{shown(path[:end])} is a file, and also the folder of {shown(path)}")
        if any(len(part.encode()) > _NAME_BYTES for part in path.split("/")):
            raise Refused(f"{shown(path)} has a name of more than {_NAME_BYTES} bytes")


def with_normal_paths(toml: BuildToml) -> BuildToml:
    """`toml` with every path in its shortest form. Raises Refused for one that leaves the project."""

    def normal(table: object, where: str) -> dict[str, tuple[str, ...]]:
        return {
            key: tuple(_normalized(path, f"{key} of {where}") for path in getattr(table, key))
            for key in ("src", "include")
        }

    update: dict[str, object] = {
        "kernel": {
            name: kernel.model_copy(update=normal(kernel, f"[kernel.{name}]"))
            for name, kernel in toml.kernel.items()
        }
    }
    if toml.torch is not None:
        update["torch"] = toml.torch.model_copy(update=normal(toml.torch, "[torch]"))
    return toml.model_copy(update=update)


# --- listed files ----------------------------------------------------------------------------


class Staged(NamedTuple):
    """The files that kernel-builder copies before it builds."""

    files: dict[str, str]
    tests: dict[str, str]
    """Python files under tests/: copied and checked, but neither built nor shipped."""
    warnings: tuple[str, ...]


def stage(project: Project, toml: BuildToml) -> Staged:
    """The files that kernel-builder copies; the paths in `toml` are normal. Raises Refused."""
    files = {f.path: f.text for f in project.files}
    lists = [(f"src of [kernel.{name}]", kernel.src) for name, kernel in toml.kernel.items()]
    if toml.torch is not None:
        lists.insert(0, ("src of [torch]", toml.torch.src))
    chosen = {"build.toml"}
    for where, paths in lists:
        for path in paths:
            _check_listed(path, where, project, files)
            chosen.add(path)
    framework = toml.torch or toml.torch_noarch
    suffixes = ("py", "pyi") if framework is None or framework.pyext is None else framework.pyext
    endings = tuple(f".{suffix}" for suffix in suffixes)
    for path in files:
        if path.startswith("torch-ext/") and path.endswith(endings):
            chosen.add(_normalized(path, "torch-ext"))
    for path in sorted(chosen & _WRITTEN):
        raise Refused(f"{shown(path)} is generated by kernel-builder; leave it out of the project's `src`")
    ours = [p for p in project.left_out if p.startswith("torch-ext/") and p.endswith(endings)]
    return Staged(
        files={path: files[path] for path in sorted(chosen)},
        tests={p: t for p, t in files.items() if p.startswith("tests/") and p.endswith(endings)},
        warnings=tuple(f"{shown(p)} {project.left_out[p]}: it is not in the package" for p in ours),
    )


def _check_listed(path: str, where: str, project: Project, files: dict[str, str]) -> None:
    if path in files:
        return
    for part in [path, *(path[:i] for i, c in enumerate(path) if c == "/")]:
        if part in project.left_out:
            raise Refused(f"{where}: {shown(path)}: {shown(part)} {project.left_out[part]}")
    if any(p.startswith(f"{path}/") for p in files) or path == ".":
        raise Refused(f"{where}: {shown(path)} is a directory; list its files")
    if any(c in path for c in "*?["):
        raise Refused(f"{where}: {shown(path)} is a pattern; list every file by name")
    if path == GENERATED_HEADER:
        raise Refused(f"{where}: {shown(path)} is generated by kernel-builder; do not list it")
    name = posixpath.basename(path.replace("\\", "/"))
    same = sorted(p for p in files if posixpath.basename(p) == name)
    hint = f"; the project has {shown(same[0])}" if same else ""
    raise Refused(f"{where}: {shown(path)} does not exist in the project{hint}")


# --- python-depends --------------------------------------------------------------------------


@cache
def _known_python() -> dict[str, frozenset[str]]:
    """By table: names that kernel-builder knows."""
    spec = importlib.util.find_spec("kernels")
    assert spec is not None and spec.origin is not None, "a dependency"
    table = json.loads(Path(spec.origin).with_name("python_depends.json").read_text())
    return {"general": frozenset(table["general"]), "general.cuda": frozenset(table["backends"]["cuda"])}


def check_python_depends(general: General) -> None:
    """Raises Refused for a name that kernel-builder does not know in that table."""
    known = _known_python()
    listed = [("general", name) for name in general.python_depends]
    listed += [("general.cuda", name) for name in (general.cuda.python_depends if general.cuda else ())]
    for where, name in listed:
        if name not in known[where]:
            elsewhere = next((table for table, others in known.items() if name in others), None)
            known_there = f"known: {', '.join(sorted(known[where]))}"
            hint = f"it belongs under [{elsewhere}]" if elsewhere else known_there
            message = f'python-depends of [{where}]: "{name[:80]}" is unknown to kernel-builder here; {hint}'
            raise Refused(message, Cause.BAD_BUILD_TOML)


# --- Python files ----------------------------------------------------------------------------

_PYTHON_FACTS: Final = """
import ast, json, sys, warnings
warnings.simplefilter("ignore")
DECORATORS = {"custom_op", "triton_op", "register_kernel", "register_fake", "register_vmap",
              "register_torch_dispatch"}
HARMLESS = {"__future__", "typing", "torch"}  # of torch only `Tensor`, see below

def called(node):
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", None) or getattr(function, "attr", None)

# Whether a statement only defines, names or calls operators: ops.name(...), with plain arguments.
def passes_on(node):
    if isinstance(node, ast.FunctionDef):
        return not node.decorator_list and all(map(passes_on, node.body))
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or node.module in HARMLESS
    if isinstance(node, ast.Import):
        return all(alias.name in HARMLESS for alias in node.names)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    value = node.value if isinstance(node, (ast.Expr, ast.Return)) else node
    if value is None or isinstance(value, ast.Constant):
        return True
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
    return (isinstance(value.func.value, ast.Name) and value.func.value.id == "ops"
            and all(isinstance(one, (ast.Name, ast.Constant)) for one in arguments))

problems, thin, imports = [], True, set()
for path, text in sorted(json.load(sys.stdin).items()):
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        problems.append(f"{path}:{line or 1}: {type(error).__name__}: {getattr(error, 'msg', error)}")
        continue
    thin = thin and all(map(passes_on, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imports.add((node.module or "").split(".")[0])
            thin = thin and (node.module != "torch" or all(a.name == "Tensor" for a in node.names))
    for node in tree.body:
        for decorator in getattr(node, "decorator_list", []):
            if called(decorator) in DECORATORS and decorator.args:
                if called(decorator.args[0]) != "add_op_namespace_prefix":
                    problems.append(
                        f"{path}:{node.lineno}: {node.name} is registered without "
                        "add_op_namespace_prefix(...), which keeps builds of a kernel apart")
print(json.dumps({"problems": problems[:20], "thin": thin, "imports": sorted(imports)[:100]}))
"""


@dataclass(frozen=True)
class PythonFacts:
    """What the Python files of a project contain."""

    problems: tuple[str, ...]
    """Syntax errors, and operators that are registered without a prefix."""
    thin: bool = False
    """The files only call the project's own operators, so they cannot do the work themselves."""
    imports: tuple[str, ...] = ()


def python_facts(files: dict[str, str]) -> PythonFacts:
    """Parse path -> text in a child process; nothing of it is executed."""
    try:
        found = ask(_PYTHON_FACTS, files, {})
    except Unparsable as error:
        return PythonFacts((f"the Python files cannot be read: {error}",))
    return PythonFacts(tuple(found["problems"]), found["thin"], tuple(found["imports"]))


# --- bindings --------------------------------------------------------------------------------

# Comments and strings; both may be without an end, so that a hostile text is scanned once.
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]++|\\.)*+"?', re.S)
_BOXED = re.compile(r"\bTORCH_BOX\s{0,9}\(\s{0,9}&\s{0,9}(?:\w{1,99}::){0,9}(\w{1,99})\b")
_SIGNATURE = re.compile(r"(\bfloat\s{1,9})?\b(\w{1,99})\s{0,9}\(([^()]{1,4000})\)")
_FLOAT = re.compile(r"\bfloat\b(?!\s*\*)")
_MOST_WARNINGS: Final = 8


def binding_warnings(files: Mapping[str, str]) -> tuple[str, ...]:
    """Warn of functions in TORCH_BOX that have a `float` parameter or result.

    The stable ABI passes a schema's `float` as a double and copies its low bytes into a C++ `float`.
    """
    sources = {path: _code(text) for path, text in sorted(files.items()) if "." in path}
    boxed = {name for text in sources.values() for name in _BOXED.findall(text)}
    found: dict[str, list[str | None]] = {}
    for path, text in sources.items() if boxed else ():
        ends = [index for index, character in enumerate(text) if character == "\n"]
        for match in _SIGNATURE.finditer(text):
            if match[2] not in boxed or "Tensor" not in match[3]:
                continue
            wrong = _FLOAT.search(match[3])
            what = "a parameter" if wrong else "the result" if match[1] else None
            at = match.start(3) + wrong.start() if wrong else match.start(2)
            place = f"{BINDING_WARNING}{path}:{bisect_left(ends, at) + 1}: {what} of `{match[2]}`"
            found.setdefault(match[2], []).append(place if what else None)
    # A function that is declared several times is wrong only if every declaration is.
    wrong_ones = [places[-1] for places in found.values() if all(places)]
    return tuple(
        f"{place} is a C++ `float`, which receives the low half of a double's bits. TORCH_BOX converts "
        "nothing: write double in every declaration, and convert inside"
        for place in wrong_ones[:_MOST_WARNINGS]
    )


def _code(text: str) -> str:
    """`text` without comments and strings, with the same lines."""
    return _NOT_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
