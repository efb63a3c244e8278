"""Searches text by a stranger's regular expression, within a limit of time.

An expression that takes for ever (`(a+)+$`) ends as one that took too long, never as a hang: it runs in a
process of its own, since Python cannot interrupt a search.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

_WALL_S: Final = 5.0
_SCRIPT: Final = (
    "import json, re, sys, warnings\n"
    "warnings.simplefilter('ignore')\n"
    "pattern, text = json.load(sys.stdin)\n"
    "print(re.search(pattern, text, re.MULTILINE) is not None)\n"
)


def occurs(pattern: str, text: str, wall_s: float = _WALL_S) -> bool | str:
    """Whether it occurs anywhere (`^` and `$` are of lines); a text is why that is not known."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SCRIPT],
            input=json.dumps([pattern, text]),
            capture_output=True,
            text=True,
            timeout=wall_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the search took longer than {wall_s:g} s"
    if done.returncode != 0:
        return f"the search ended with status {done.returncode}"
    return done.stdout.strip() == "True"
