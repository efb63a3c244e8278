"""What the tools of kernel work print when they fail, a line each.

Every pattern is linear in a line of bounded length, and matches nothing without a cue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

Category = Literal[
    "crash",
    "cuda",
    "wrong result",
    "link",
    "compile",
    "build.toml",
    "build",
    "python",
    "timeout",
    "exit",
    "other",
]
SEVERITY: Final[tuple[Category, ...]] = get_args(Category)
"""The gravest first."""
REACHED: Final[dict[Category, int]] = {
    **dict.fromkeys(("build.toml", "build", "other"), 0),
    "compile": 1,
    "link": 2,
    **dict.fromkeys(("python", "exit", "timeout"), 3),
    **dict.fromkeys(("crash", "cuda"), 4),
    "wrong result": 5,
}
"""How far a program came that fails like this: what fails earlier says nothing about what comes later."""

_CUE_WORDS: Final = """
error fatal fail exception traceback interrupt undefined mismatch not_close not_equal not_match allclose
differ illegal misaligned launch resources kernel_image out_of_memory timed_out timedout timeout exit
return_code returncode non-zero dumped killed segmentation not_found no_such denied cannot unknown
missing_field invalid wrong incorrect max capabilities must_contain legacy_format definition_of correct
match passed double_free uninitialized race potential program_hit
"""
_CUES: Final = tuple(word.replace("_", " ") for word in _CUE_WORDS.split())


def has_cue(text: str) -> bool:
    """Whether any pattern may match somewhere in the text: far quicker than asking the patterns."""
    low = text.lower()
    return any(cue in low for cue in _CUES)


@dataclass(frozen=True)
class Pattern:
    """One form that an error takes."""

    category: Category
    regex: re.Pattern[str]
    """Its first group that matched is the headline, without groups the line; empty groups: the next line."""
    loose: bool = False
    """Matches what people say as well: only for what tools print."""
    consequence: bool = False
    """Says that something failed, not what: counts where nothing else says more."""


def _p(category: Category, *regex: str, loose: bool = False, consequence: bool = False) -> Pattern:
    return Pattern(category, re.compile("".join(regex)), loose, consequence)


# The first that matches a line, without its indentation, counts.
PATTERNS: Final = (
    _p("cuda", r"^=+ ((?:Invalid|Misaligned|Uninitialized|Race|Potential|Program hit).+)"),
    _p(
        "compile",
        r"^[^\s:()\"'][^:()\"']{0,300}(?:\(\d+\)|:\d+(?::\d+)?)\s?:\s+",
        r"((?:fatal |catastrophic |internal )?error\b[^:]{0,20}:\s*.+)",
    ),
    _p("link", r"^(?:nvlink|lld?|ld\.lld)\s*:?\s*(?:error|fatal)\s*:\s*(.+)"),
    _p(
        "compile",
        r"^(?:\S*/)?(?:ptxas|nvcc|cicc|cudafe\+\+|cc1plus|g\+\+|gcc|clang(?:\+\+)?)\S{0,40}\s*:?\s*",
        r"(?:error|fatal(?: error)?)\s*:\s*(.+)",
    ),
    _p("link", r"(undefined reference to .+|multiple definition of .+|undefined symbol: .+)"),
    _p("link", r"(?:^|[/ ])ld(?:\.\w+)?: ((?:error|cannot find).+)"),
    _p("link", r"(\S+: cannot open shared object file.*)"),
    _p("build", r"^CMake Error(?: at [^:]+:\d+)?[^:]*(?::\s*(.*))?$"),
    _p("build", r"^ninja: error: (.+)"),
    _p(
        "build",
        r"^(ninja: build stopped.*|FAILED: .+|collect2: error: .+|make(?:\[\d+\])?: \*\*\* .+)",
        consequence=True,
    ),
    _p("build.toml", r"(Cannot parse (?:build configuration|TOML).+)"),
    _p("build.toml", r"(Unknown (?:field|variant) .+Expected.+|Invalid kernel name.+)"),
    _p("build.toml", r"^[^\w]*((?:Missing field|Invalid type) .+)", loose=True),
    _p(
        "build.toml", r"empty set of capabilities|unsupported legacy format|Python module at \S+ must contain"
    ),
    _p("wrong result", r"Tensor-likes are not (?:close|equal)"),
    _p(
        "wrong result",
        r"(?i)^\W*((?:mismatch|(?:wrong|incorrect) (?:results?|values?|outputs?))\b.*)",
        loose=True,
    ),
    _p(
        "wrong result",
        r"(?i)\b(?:allclose|correct(?:ness)?|match(?:es)?|passed)\b['\"]?\s*(?:\([^)]{0,200}\))?",
        r"\s*[:=]+>?\s*(?:False|FAIL(?:ED)?|NO)\b",
        loose=True,
    ),
    _p("wrong result", r"(?i)\bmax[\w ]{0,20}(?:diff|err)\w*\b\W{0,4}(?:nan|inf)\b", loose=True),
    _p("wrong result", r"(?i)\boutputs? (?:do(?:es)? not match|differs?)\b", loose=True),
    _p("wrong result", r"^(verdict: wrong_result.+)"),
    _p(
        "cuda",
        r"((?:CUDA|cuda|cudart|cuBLAS|NCCL)[\w ]{0,20} [Ee]rror\b ?(?:\d+ ?)?[:(].+|CUDA out of memory.*)",
    ),
    _p(
        "cuda",
        r"((?:an )?illegal memory access.*|misaligned address.*|unspecified launch failure.*",
        r"|no kernel image is available.*|too many resources requested for launch.*)",
        loose=True,
    ),
    _p(
        "crash",
        r"(Segmentation fault.*|Aborted \(core dumped\).*|Bus error.*|Fatal Python error.*",
        r"|double free or corruption.*|Illegal instruction.*)",
        loose=True,
    ),
    _p("crash", r"^(?:.*: line \d+:\s+\d+ )?(Killed)\b", loose=True),
    _p("timeout", r"(?i)\b(?:timed out|TimeoutExpired|timeout (?:exceeded|after|reached|of))\b", loose=True),
    _p("build", r"^(verdict: (?:build_failed|load_failed|no_project).+)"),
    _p("crash", r"^(verdict: (?:crashed|cheated).+)"),
    _p("timeout", r"^(verdict: timed_out.+)"),
    _p("python", r"^(?:FAILED|ERROR) \S+ - (.+)", loose=True, consequence=True),
    _p("python", r"^((?:[a-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout)(?:: .+)?)$"),
    _p("other", r": (?:command not found|Permission denied|No such file or directory)", loose=True),
    _p(
        "exit",
        r"(?i)\b(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code)[:= ]+-?[1-9]\d{0,4}\b",
        loose=True,
        consequence=True,
    ),
    _p("exit", r"returned non-zero exit status", loose=True, consequence=True),
    _p(
        "other",
        r"^\[?(?:\S{1,40}: )?(?:error|ERROR|Error|fatal|FATAL)(?:\[\w+\])?\]?\s*:\s*(.+)",
        loose=True,
    ),
)
