"""Checks of a project's Python files that kernel-builder makes before it builds.

Owns: syntax, and that operators registered from Python carry the build's own namespace.
Does not own: whether the package imports (the load stage does that, in a sandbox).
Invariant: student text is parsed in a child process only, and never run.
"""

from __future__ import annotations

import json
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

problems = []
for path, text in sorted(json.load(sys.stdin).items()):
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        problems.append(f"{path}:{line or 1}: {type(error).__name__}: {getattr(error, 'msg', error)}")
        continue
    for node in tree.body:
        for decorator in getattr(node, "decorator_list", []):
            if called(decorator) in DECORATORS and decorator.args:
                if called(decorator.args[0]) != "add_op_namespace_prefix":
                    problems.append(
                        f"{path}:{node.lineno}: {node.name} is registered without "
                        "add_op_namespace_prefix(...), which keeps builds of a kernel apart")
print(json.dumps(problems[:20]))
"""


def python_problems(files: dict[str, str]) -> list[str]:
    """Syntax errors and unprefixed registrations; in a child, since hostile text can end a parser."""
    question = Question(stdin=json.dumps(files).encode())
    try:
        problems: list[str] = ask(_CHECK, question, lambda: Question(stdin=b"{}"), ("-S",))
    except Unparsable as error:
        return [f"the Python files cannot be read: {error}"]
    return problems
