"""Decides how certain it is that code of a skill is wrong.

A piece of code may rely on what its author does not show: names, headers, flags, the function around it. So
an unknown name is an error in a whole file or project only; a piece is wrong when the compiler knew every
name and refused what the piece itself says.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from harness.builder.units import HEADER_SUFFIXES
from harness.records import Diagnostic
from harness.skills.blocks import CodeBlock
from harness.skills.findings import Severity

_CONTEXT = re.compile(
    r"is undefined|not (?:been )?declared|undeclared|is not a member|has no member|does not name a type"
    r"|No such file|cannot open source file|not a (?:template|type|class|namespace)"
    r"|must be a class or namespace"
    r"|unknown type|incomplete type|already (?:been )?(?:declared|defined)|redeclar|redefin|conflicting"
    r"|previous|no instance of|no matching|no operator|target specific option|<error-type>",
    re.IGNORECASE,
)
"""What an earlier line, a header or a flag may settle."""
_SURE = re.compile(
    r"too (?:few|many) (?:arguments|initializer)|a value of type .* cannot be (?:used|assigned)|zero-sized"
    r"|argument of type .* is incompatible|invalid conversion from|cannot convert|must be a modifiable lvalue"
    r"|lvalue required|assignment of read-only|static assertion failed|return value type",
    re.IGNORECASE,
)
"""What is wrong with types and counts that the compiler knows."""
_LIBRARY_NAMES = re.compile(
    r"\b(?:index|rindex|y[01n]|j[01n]|gamma|div|time|clock|select|read|write|link|access|pipe|signal|remove|rename"
    r"|round|exp|log|abs)\b(?!\s*\()"
)
"""A variable that the piece does not declare may be taken for a function of that name."""
_MACRO = re.compile(r"['\"‘]_*[A-Z][A-Z0-9_]*['\"’]")
_ELIDED = re.compile(
    r"^\s*(?:\.\.\.|…)|//.*(?:\.\.\.|…)|/\*[^*]*(?:\.\.\.|…)|^\s*#.*(?:\.\.\.|…)|\{\s*\.\.\.\s*\}|[(,]\s*\.\.\.\s*\)\s*;"
    r"|<your[ _-]|\bYOUR_|\{\{\s*[a-z_]+\s*\}\}|\{%",
    re.M,
)
_TEMPLATE = re.compile(r"\{\{-?\s*\w|\{%|<%|\$\{|<[A-Za-z][\w -]*>|\.\.\.|…|\bYOUR_|[\"']X\.Y")
_WRONG = re.compile(
    r"\b(?:wrong|incorrect|bad|broken|invalid|anti-?pattern|never|refused?|rejected|fails?|mistakes?|pseudo-?code|old"
    r"|(?:do|does|will|must|can) ?not|(?:do|does|wo|ca)n['’]?t|instead of|before:)\b|❌|✗|🚫",
    re.IGNORECASE,
)
_WRONG_COMMENT = re.compile(
    r"(?://|#|/\*).*(?:\b(?:WRONG|BAD|BROKEN|INCORRECT|ERROR)\b|(?i:\bdoes not (?:compile|build|parse))"
    r"|❌|✗|🚫)"
)
_NEAR: Final = 3
"""Lines of one statement."""
_LEAD: Final = 2
"""Lines before a block that may say that it is wrong."""


def is_whole(block: CodeBlock) -> bool:
    """A source file that claims to be complete; a header may rely on who includes it."""
    if block.path is None or is_elided(block.text):
        return False
    return PurePosixPath(block.path).suffix not in HEADER_SUFFIXES


def is_elided(text: str) -> bool:
    """Something is left out of this code, or a placeholder stands in it."""
    return _ELIDED.search(text) is not None


def is_template(text: str) -> bool:
    """A placeholder stands in this configuration or script."""
    return _TEMPLATE.search(text) is not None


def compiler_severity(block: CodeBlock, told: Diagnostic) -> Severity:
    """How sure a compiler's error is, for code that was compiled without the rest of its project."""
    if told.kind in ("missing_header", "wrong_arch"):
        return "note"
    if told.kind in ("timeout", "out_of_memory", "other"):
        return "warning"
    whole = is_whole(block)
    if _CONTEXT.search(told.message):
        return "error" if whole and not _MACRO.search(told.message) else "note"
    source = told.source or ""
    sure = _SURE.search(told.message) is not None and not _LIBRARY_NAMES.search(source)
    if whole or (sure and not is_elided(_around(block.text, source))):
        return "error"
    return "note" if is_elided(block.text) else "warning"


def _around(text: str, source: str) -> str:
    """The lines near the one that a compiler quotes."""
    lines = text.split("\n")
    at = next((n for n, line in enumerate(lines) if line.strip() == source.strip()), 0)
    return "\n".join(lines[max(at - _NEAR, 0) : at + _NEAR + 1])


def shown_as_wrong(block: CodeBlock, document: str) -> bool:
    """Whether the lines before a block, or a comment in it, say that the code is wrong."""
    above = [line for line in document.split("\n")[: max(block.line - 1, 0)] if line.strip()][-_LEAD:]
    lead = above if block.line else []
    return any(_WRONG.search(line) for line in lead) or _WRONG_COMMENT.search(block.text) is not None
