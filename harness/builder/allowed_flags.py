"""The allow-list of compiler flags in a project.

An allowed flag names no file outside the project, loads or runs nothing, writes no file, and does not reach
the linker or the assembler.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_PLAIN = re.compile(r"[ -~]{1,400}")  # printable ASCII: nothing that could end a line of a ninja file
# No $, ` or \: nvcc runs its steps through a shell of its own, inside double quotes.
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w, .]*\))?(=[^$`\\]*)?")
_PATH = re.compile(r"[\w.+-][\w.+/-]*|\.")

# Code generation and diagnostics of g++.
_GXX: Final = re.compile(
    r"""-O([0-3sgz]|fast)? | -g[0-3]? | -w | -pthread | -pedantic(-errors)?
    | -std=(c|gnu)\+\+[0-9a-z]{2}
    | -W(?![lap],)[a-zA-Z][\w+-]*(=[\w<>.-]+)?
    | -m(?!arch=native|tune=native|cpu=native|llvm|axrregcount)[a-z0-9][\w.-]*(=[\w.,+-]+)?
    | -fPIC | -fpic | -fpermissive | -f(no-)?gnu-unique | -f(no-)?rtti | -f(no-)?exceptions
    | -f(no-)?(fast-math | math-errno | finite-math-only | unsafe-math-optimizations
        | associative-math | reciprocal-math | signed-zeros | trapping-math | rounding-math
        | cx-limited-range | cx-fortran-rules | signaling-nans | single-precision-constant)
    | -ffp-contract=(fast|on|off) | -fexcess-precision=(fast|standard)
    | -f(no-)?(unroll-loops | unroll-all-loops | peel-loops | split-loops | ipa-[a-z-]+
        | tree-[a-z-]+ | inline(-[a-z-]+)? | prefetch-loop-arrays | loop-[a-z-]+ | sched-[a-z-]+
        | schedule-insns2? | gcse(-[a-z]+)? | rename-registers | omit-frame-pointer
        | strict-aliasing | strict-overflow | wrapv | trapv | delete-null-pointer-checks
        | semantic-interposition | stack-protector(-[a-z]+)? | common | plt | builtin
        | function-sections | data-sections | merge-constants | align-[a-z-]+
        | openmp(-simd)? | char8_t | sized-deallocation | aligned-new | concepts | coroutines
        | signed-char | unsigned-char | short-enums | elide-constructors | threadsafe-statics
        | keep-inline-functions | jump-tables | modulo-sched | web | tracer)(=[\w-]+)?
    | -fvisibility=(default|hidden|protected|internal) | -fvisibility-inlines-hidden
    | -f(vect|simd)-cost-model=[a-z-]+
    | -f(template|constexpr)-(backtrace-)?(depth|limit|loop-limit|ops-limit)=\d{1,9}
    | -fmax-errors=\d{1,4} | -fdiagnostics-color(=\w+)?
    """,
    re.X,
)
_NVCC: Final = re.compile(
    r"""-{1,2}use_fast_math | -lineinfo | --generate-line-info | -G | --device-debug
    | -{1,2}maxrregcount=\d{1,3} | -{1,2}(ftz|prec-div|prec-sqrt|fmad)=(true|false)
    | -{1,2}(expt-relaxed-constexpr | expt-extended-lambda | extended-lambda)
    | -{1,2}(restrict | resource-usage | res-usage | extra-device-vectorization)
    | -{1,2}(source-in-ptx | src-in-ptx) | -{1,2}static-global-template-stub=(true|false)
    | -{1,2}default-stream=(legacy|null|per-thread)
    | -{1,2}(threads|split-compile|split-compile-extended)=\d{1,2} | -t=?\d{1,2}
    | -{1,2}(compress-all | no-compress) | -{1,2}compress-mode=\w+
    | -{1,2}(rdc|relocatable-device-code)=(true|false)
    | -{1,2}(diag-suppress|diag-warn|diag-error|diag-remark)=[\w,]+
    | -{1,2}(disable-warnings | Wno-[\w-]+ | Wreorder)
    | --ftemplate-(backtrace-limit|depth)=\d{1,9}
    | --std=c\+\+\d\d | --optimize=[0-3]
    | -{1,2}(ewp | display-error-number | err-no | no-display-error-number)
    | -{1,2}(arch|gpu-architecture|code|gpu-code)=[a-z]+_\d{2,3}[af]?(,[a-z]+_\d{2,3}[af]?)*
    | -{1,2}(gencode|generate-code)=arch=compute_\d{2,3}[af]?
        ,code=\[?[a-z]+_\d{2,3}[af]?(,[a-z]+_\d{2,3}[af]?)*\]?
    """,
    re.X,
)
_PTXAS: Final = re.compile(
    r"""-v | --verbose | -O[0-4] | --opt-level=[0-4] | -w | --disable-warnings
    | -{1,2}warn-(spills|lmem-usage|double-usage|lmem) | -Werror | -{1,2}warning-as-error
    | -{1,2}warn-on-(spills|local-memory-usage|double-precision-use)
    | -{1,2}suppress-(async-bulk-multicast-advisory-warning|sparse-mma-advisory-info)
    | -{1,2}(generate-line-info|dont-merge-basicblocks|compiler-annotations)
    | -{1,2}(maxrregcount|allow-expensive-optimizations|fmad|def-load-cache|def-store-cache
        |force-load-cache|force-store-cache|dlcm|dscm|flcm|fscm|register-usage-level
        |disable-optimizer-constants|optimize-float-atomics|position-independent-code
        |suppress-double-demote-warning|suppress-stack-size-warning)(=\w+)?
    """,
    re.X,
)
_CUDAFE: Final = re.compile(r"--(diag_suppress|diag_warning)=[\w,]+ | --display_error_number", re.X)
_FATBINARY: Final = re.compile(r"-{1,2}(compress-all|no-compress|compress=(true|false))")
_NATIVE: Final = re.compile(r"-m(arch|tune|cpu)=native")
_LIBRARY: Final = re.compile(r"-l(?!ineinfo|dir|ib)[\w.+-]{1,40}")  # not nvcc's own -lineinfo and kin

# Flags of nvcc whose value may be the next entry; joined as `-x=v` for the lists above.
_TAKES_VALUE: Final = re.compile(
    r"""-{1,2}(maxrregcount | gencode | generate-code | arch | gpu-architecture | code | gpu-code
    | threads | split-compile | std | diag-suppress | default-stream | rdc | optimize
    | relocatable-device-code | ftz | prec-div | prec-sqrt | fmad) | -t | -O
    """,
    re.X,
)
_PASSES_ON: Final = {
    "-Xcompiler": _GXX,
    "--compiler-options": _GXX,
    "-Xptxas": _PTXAS,
    "--ptxas-options": _PTXAS,
    "-Xcudafe": _CUDAFE,
    "-Xfatbin": _FATBINARY,
    "--fatbin-options": _FATBINARY,
}
_REASONS: Final = (
    (r"-fplugin|-wrapper|-specs|-B|--run|-run|-time|--dryrun", "it runs or loads other programs"),
    (r"-{1,2}(ccbin|compiler-bindir|idp|input-drive-prefix|ldir|libdevice)", "it replaces a tool"),
    (r"-l|-L|-Wl,|-Xlinker|--linker-options|-Xnvlink|-shared|-static|-rpath", "it is for the linker"),
    (r"-Wa,|-Wp,|-Xassembler|-Xpreprocessor|-Xarchive", "it passes options to other programs"),
    (r"@|-{1,2}(options-file|optf)", "response files are not read"),
    (r"-{1,2}(o|output.*|c|E|S|M\w*|keep.*|save-temps.*|cubin|ptx|fatbin)$", "it changes what is written"),
    (r"-fdump|-fprofile|-ftest-coverage|-fcallgraph", "it writes files of its own"),
    (r"-isystem|-iquote|-idirafter|-isysroot|--sysroot|-imacros", "it names files outside the project"),
)


class Allowed(NamedTuple):
    words: tuple[str, ...] = ()
    refused: str | None = None
    """Which flag is refused and why; nothing may be passed on in that case."""
    warnings: tuple[str, ...] = ()


class _Refused(Exception):
    pass


def screen(flags: Sequence[str], *, nvcc: bool) -> Allowed:
    """Screen flags for nvcc or for g++."""
    warnings: list[str] = []
    try:
        for flag in flags:
            _check_plain(flag)
        kept = tuple(_words(iter(flags), nvcc, warnings))
    except _Refused as refusal:
        return Allowed(refused=str(refusal))
    return Allowed(kept, None, tuple(warnings))


def _check_plain(flag: str) -> None:
    if not _PLAIN.fullmatch(flag):
        raise _Refused(f"{flag[:80]!r}: flags are 1 to 400 printable ASCII characters")
    if not flag.startswith(("-D", "-U")) and len(flag.split()) != 1:
        parts = ", ".join(f'"{part}"' for part in flag.split())
        raise _Refused(f'"{flag}": one flag per entry, so write {parts}')


def _refuse(flag: str) -> _Refused:
    for pattern, reason in _REASONS:
        if re.match(pattern, flag):
            return _Refused(f'"{flag}" is refused: {reason}')
    return _Refused(f'"{flag}" is refused: it is not on the list of flags that liftbench passes on')


def _common(flag: str, rest: Iterator[str], warnings: list[str]) -> tuple[str, ...] | None:
    """The words for a flag with a value that g++ and nvcc share; None for other flags."""
    for option in ("-D", "-U"):
        if flag.startswith(option):
            value = flag[2:] or next(rest, "")
            if _MACRO.fullmatch(value) is None:
                raise _Refused(f'"{option}{value}" is refused: NAME or NAME=value, without $, ` and \\')
            return (option + value,)
    if flag.startswith("-I"):
        warnings.append(f'"{flag}": upstream resolves -I from its own build folder; use `include` instead')
        return ("-Isource/" + _project_path("-I", flag[2:] or next(rest, "")),)
    if flag == "-include":
        return ("-include", "source/" + _project_path(flag, next(rest, "")))
    if _NATIVE.fullmatch(flag):
        # As nixpkgs' compiler wrapper: a published build must not depend on the builder's CPU.
        warnings.append(f'"{flag}" is left out: kernel-builder leaves it out too')
        return ()
    if _LIBRARY.fullmatch(flag):
        warnings.append(f'"{flag}" is left out: these flags are for compiling, where it does nothing')
        return ()
    return None


def _project_path(flag: str, value: str) -> str:
    if _PATH.fullmatch(value) is None or ".." in value.split("/"):
        raise _Refused(f'"{flag} {value}" is refused: only paths inside the project, without `..`')
    return posixpath.normpath(value)


def _words(flags: Iterator[str], nvcc: bool, warnings: list[str]) -> Iterator[str]:
    for flag in flags:
        shared = _common(flag, flags, warnings)
        name, equals, value = flag.partition("=")
        if shared is not None:
            yield from shared
        elif nvcc and name in _PASSES_ON:
            yield from _passed_on(name, value if equals else next(flags, ""), warnings)
        elif nvcc and _TAKES_VALUE.fullmatch(flag):
            value = next(flags, "")
            joined = f"-O{value}" if flag == "-O" else f"{flag}={value}"
            if not (_NVCC.fullmatch(joined) or re.fullmatch(r"-O[0-3]|-std=c\+\+\d\d", joined)):
                raise _refuse(f"{flag} {value}")
            yield joined
        elif _GXX.fullmatch(flag) or (nvcc and _NVCC.fullmatch(flag)):
            yield flag
        else:
            raise _refuse(flag)


def _passed_on(name: str, value: str, warnings: list[str]) -> Iterator[str]:
    """Screen each comma-separated part of -Xcompiler and similar flags for the tool that receives it."""
    allowed = _PASSES_ON[name]
    for part in [value] if allowed is _CUDAFE else value.split(","):
        if _NATIVE.fullmatch(part):
            warnings.append(f'"{part}" is left out: kernel-builder leaves it out too')
            continue
        definition = allowed is _GXX and re.fullmatch(r"-[DU][A-Za-z_]\w*(=\w*)?", part)
        if not definition and allowed.fullmatch(part) is None:
            raise _refuse(f"{name} {value}")
        yield f"{name}={part}"
