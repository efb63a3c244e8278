"""The check on skills that others wrote: Hugging Face's, from a folder that the environment names."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness.builder.build import build
from harness.builder.toolchain import Toolchain
from harness.skills.check import check_skill
from sandboxes.pool import StoppableSandbox

FOLDER = "LIFTBENCH_HF_SKILLS"
"""kernel-builder/skills of a checkout of huggingface/kernels."""
NAMES = ("cpu-kernels", "cuda-kernels", "rocm-kernels", "triton-kernels", "xpu-kernels")
CERTAIN = (
    r"has no frontmatter: the first line must be `---`",
    r"the link '[^']+' points at nothing in the skill",
    r"build\.toml is not valid: ",
    r"kernel-builder refuses this: ",
    r"the boards have 228 KB of shared memory per SM",
    r"this code does not compile for sm_90: (?:too many initializer values|invalid conversion from 'void\*')",
)
"""A dead link, a broken frontmatter, what kernel-builder's parser refuses, a wrong figure, a wrong type."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_error_is_certain(
    name: str, tmp_path: Path, toolchain: Toolchain, sandbox: StoppableSandbox
) -> None:
    """No error on an unknown name, a link from the root, a client's field or a piece of something larger."""
    root = os.environ.get(FOLDER)
    if root is None:
        pytest.skip(f"{FOLDER} names no folder: set it to kernel-builder/skills of huggingface/kernels")
    cache = tmp_path / "cache"
    report = check_skill(
        Path(root) / name,
        build=lambda p, t: build(p, t, sandbox=sandbox, toolchain=toolchain, cache=cache).result,
    )
    assert report.files
    errors = [str(finding) for finding in report.findings if finding.severity == "error"]
    assert [e for e in errors if not any(re.search(kind, e) for kind in CERTAIN)] == []
    assert not [e for e in errors if re.search(r"undefined|not declared|not a member|No such file", e)]
