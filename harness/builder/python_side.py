"""What a project's Python files say: problems that kernel-builder refuses, and whether they are thin.

Student text is parsed in a child process only, and never run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from harness.builder.parsing import Question, Unparsable, ask

_CHECK: Final = """
import ast, json, sys, warnings
warnings.simplefilter("ignore")
DECORATORS = {"custom_op", "triton_op", "register_kernel", "register_fake", "register_vmap",
              "register_torch_dispatch"}

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

HARMLESS = {"__future__", "typing", "torch"}  # of torch only `Tensor`, see below
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
    """What the Python files of a project say."""

    problems: tuple[str, ...]
    """Syntax errors and unprefixed registrations."""
    thin: bool = False
    """Nothing but calls of operators of the project's own: they cannot do the work themselves."""
    imports: tuple[str, ...] = ()
    """Top-level modules, as far as import statements tell."""


def python_facts(files: dict[str, str]) -> PythonFacts:
    """Reads path -> text in a child, since hostile text can end a parser."""
    question = Question(stdin=json.dumps(files).encode())
    try:
        found = ask(_CHECK, question, lambda: Question(stdin=b"{}"), ("-S",))
    except Unparsable as error:
        return PythonFacts((f"the Python files cannot be read: {error}",))
    return PythonFacts(tuple(found["problems"]), found["thin"], tuple(found["imports"]))
