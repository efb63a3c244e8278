"""What still works where optional packages are missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.builder.toolchain import Toolchain

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = ("ray", "skills_ref", "hypothesis", "xdist")
BAD = ROOT / "tests" / "zoo" / "bad_build_toml"

# `import NAME` then fails as for a package that was never installed.
_HIDDEN = f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL!r}))
from harness.cli.main import run
for words in (
    ["tasks", "list"],
    ["skills", "check", "cuda-kernel-builder", "--no-build"],
    ["eval", "cuda-kernel-builder", "-m", "openai/x", "-m", "anthropic/y", "--limit", "6", "--dry-run"],
    ["grade", sys.argv[1], "--task", "l1/rms_norm", "--target", "cpu", "--sandbox", "local",
     "--cache", sys.argv[2]],
):
    assert run(words) == 0, words
"""


@pytest.mark.slow
def test_no_command_needs_an_optional_package(toolchain: Toolchain, tmp_path: Path) -> None:
    """Listing, checking, planning and grading work without the extras and the packages of developers."""
    done = subprocess.run(
        [sys.executable, "-c", _HIDDEN, str(BAD), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in ("l1/rms_norm", "cuda-kernel-builder: ok", "120 trials", "bad_build_toml"):
        assert text in done.stdout
