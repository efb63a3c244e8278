"""Source files as HTML: syntax color, line numbers, and errors at their lines.

The patterns take linear time on any text, which is a student's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from keyword import kwlist
from pathlib import PurePosixPath
from typing import Final

from markupsafe import Markup, escape

from harness.records import Diagnostic
from harness.text import clean

_WORD: Final = r"|(?P<n>\b\d(?:[\w.]|'(?=\w))*)|(?P<k>\b[A-Za-z_]\w*)"
_C: Final = re.compile(
    r'(?P<c>//[^\n]*|/\*(?s:.*?)(?:\*/|\Z))|(?P<s>"(?:[^"\\\n]|\\.)*"?|\'(?:[^\'\\\n]|\\.)*\'?)'
    rf"|(?P<p>^[ \t]*\#[ \t]*\w+){_WORD}",
    re.MULTILINE,
)
_SCRIPT: Final = re.compile(
    r'(?P<c>#[^\n]*)|(?P<s>"""(?s:.*?)(?:"""|\Z)|\'\'\'(?s:.*?)(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*"?'
    rf"|'(?:[^'\\\n]|\\.)*'?)|(?P<p>^[ \t]*(?:@[\w.]+|\[[^\n]*)){_WORD}",
    re.MULTILINE,
)
_C_WORDS: Final = """
alignas alignof asm auto bool break case catch char class const constexpr continue decltype default delete do
double else enum explicit extern false float for friend goto if inline int long mutable namespace new noexcept
nullptr operator private protected public register reinterpret_cast return short signed sizeof static
static_assert static_cast struct switch template this throw true try typedef typename union unsigned using
virtual void volatile while int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t half
float2 float4 int2 int4 uint4 __constant__ __device__ __forceinline__ __global__ __half __half2 __host__
__launch_bounds__ __nv_bfloat16 __nv_bfloat162 __restrict__ __shared__ __syncthreads
"""
_C_FILES: Final = (".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".hxx", ".inl")
_LANGUAGES: Final[Mapping[str, tuple[re.Pattern[str], frozenset[str]]]] = {
    **dict.fromkeys(_C_FILES, (_C, frozenset(_C_WORDS.split()))),
    **dict.fromkeys((".py", ".pyi", ".toml"), (_SCRIPT, frozenset((*kwlist, "true", "false")))),
}


def _colored(path: str, text: str) -> Iterator[str]:
    """Escaped pieces of text; no element goes over the end of a line."""
    pattern, words = _LANGUAGES.get(PurePosixPath(path).suffix, (None, frozenset[str]()))
    end = 0
    for token in pattern.finditer(text) if pattern else ():
        kind = token.lastgroup
        if kind == "k" and token[0] not in words:
            continue
        yield str(escape(text[end : token.start()]))
        lines = (f"<i class={kind}>{escape(line)}</i>" if line else "" for line in token[0].split("\n"))
        yield "\n".join(lines)
        end = token.end()
    yield str(escape(text[end:]))


def _said(one: Diagnostic) -> Markup:
    column = f", column {one.column}" if one.column else ""
    said = Markup("<b>line {}{}: {}</b> {}").format(
        one.line, column, one.kind.replace("_", " "), clean(one.message)
    )
    return said + Markup("<small>{}</small>").format(clean(one.advice)) if one.advice else said


def listing(path: str, text: str, errors: Mapping[str, Diagnostic]) -> Markup:
    """text with line numbers and syntax color; every error (by its id; with a line) below its line."""
    lines = "".join(_colored(path, clean(text).expandtabs(4))).removesuffix("\n").split("\n")
    at: dict[int, list[tuple[str, Diagnostic]]] = {}
    for name, one in errors.items():
        at.setdefault(min(max(one.line or 1, 1), len(lines)), []).append((name, one))
    parts, first = list[str](), 0
    for last in [*sorted(at), len(lines)]:
        shown = lines[first:last]
        if last in at and shown:
            shown[-1] = f"<mark>{shown[-1]}</mark>"
        if shown:
            numbered = "\n".join(f"<b></b>{line}" for line in shown)
            parts.append(f'<pre class="code" tabindex="0" style="--from:{first}">{numbered}</pre>')
        parts += [f'<p class="error" id="{name}">{_said(one)}</p>' for name, one in at.pop(last, ())]
        first = last
    return Markup("".join(parts))
