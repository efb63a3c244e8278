"""CUDA capabilities: their spelling, and which of a kernel's serve the GPU that we grade on.

For the same input the result is that of upstream's cuda_archs_loose_intersection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

TARGET: Final = "9.0"
"""Capability of H100 and H200: without cuda-capabilities upstream builds for the visible GPU only."""
_CAPABILITY = re.compile(r"(\d{1,3})\.(\d)([af]?)(\+PTX)?")
_LOOSE = re.compile(r"(?:sm|compute)?_?(\d{1,2})\.?(\d)([af]?)(\+PTX)?", re.I)


def supported(cuda: tuple[int, int]) -> tuple[str, ...]:
    """The capabilities that kernel-builder builds for with this CUDA release."""
    if cuda >= (13, 0):
        return ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0", "12.1")
    if cuda >= (12, 8):
        return ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.1", "12.0")
    return ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0")


def misspelt(capability: str) -> str | None:
    """For what is no capability: how it should be written, or "" when nothing comes to mind."""
    if _CAPABILITY.fullmatch(capability):
        return None
    loose = _LOOSE.fullmatch(capability.strip())
    if loose is None:
        return ""
    major, minor, letter, ptx = loose.groups()
    return f"{int(major)}.{minor}{letter.lower()}{'+PTX' if ptx else ''}"


def _version(capability: str) -> tuple[int, int]:
    major, minor = capability.rstrip("af").split(".")
    return int(major), int(minor)


def loose_intersection(kernel: Sequence[str], targets: Sequence[str]) -> tuple[str, ...]:
    """Of the kernel's capabilities (well spelt), those that serve one of `targets`.

    "9.0a" takes the place of target 9.0; each other target gets the highest capability at or below
    it of the same major version, or of any version with +PTX (the driver compiles PTX further).
    """
    with_ptx = {c.removesuffix("+PTX") for c in kernel if c.endswith("+PTX")}
    bases = list(dict.fromkeys(c.removesuffix("+PTX") for c in kernel))
    open_targets = list(targets)
    chosen: list[str] = []
    for specific in [c for c in bases if c[-1] in "af"]:
        bases.remove(specific)
        if specific[:-1] in targets:
            chosen.append(specific)
            if specific[:-1] in open_targets:
                open_targets.remove(specific[:-1])
    for target in map(_version, open_targets):
        fitting = [
            c
            for c in sorted(bases, key=_version)
            if _version(c) <= target and (c in with_ptx or _version(c)[0] == target[0])
        ]
        chosen += fitting[-1:]
    ordered = sorted(dict.fromkeys(chosen), key=lambda c: (_version(c), c))
    return tuple(f"{c}+PTX" if c in with_ptx else c for c in ordered)


def gencode(capabilities: Sequence[str]) -> tuple[str, ...]:
    """nvcc's flags: `9.0a` -> -gencode arch=compute_90a,code=sm_90a."""
    words: list[str] = []
    for capability in capabilities:
        number = capability.removesuffix("+PTX").replace(".", "")
        words += ["-gencode", f"arch=compute_{number},code=sm_{number}"]
        if capability.endswith("+PTX"):
            words += ["-gencode", f"arch=compute_{number},code=compute_{number}"]
    return tuple(words)


def code_names(capabilities: Sequence[str]) -> tuple[str, ...]:
    """As nvcc names what is in the binary: `8.0+PTX` -> sm_80, compute_80."""
    words = gencode(capabilities)[1::2]
    return tuple(dict.fromkeys(word.rpartition("code=")[2] for word in words))
