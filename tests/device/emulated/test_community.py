"""Published projects give PyTorch's results on the emulated GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from harness.builder.toolchain import Toolchain
from sandboxes.pool import SandboxPool
from tools.community.projects import PINNED, VARIABLE, absent, run


@pytest.mark.slow
@pytest.mark.parametrize("name", PINNED)
def test_a_published_project_is_correct(name: str, sandbox: SandboxPool, toolchain: Toolchain) -> None:
    """Every function of a project of kernels-community agrees with PyTorch, in all shapes and dtypes."""
    folder = os.environ.get(VARIABLE)
    why = absent(name, folder) or toolchain.missing("cuda")
    if why is not None or folder is None:
        pytest.skip(f"{name}: {why}")
    seen = run(name, Path(folder), sandbox, toolchain, user_cache_path("liftbench"))
    assert seen.outcome == "correct", seen


def test_a_project_is_taken_only_as_pinned(tmp_path: Path) -> None:
    """Without the variable, without the project, and with other files, the reason names the project."""
    (tmp_path / "relu").mkdir()
    whys = [absent("relu", None), absent("relu", str(tmp_path))]
    (tmp_path / "relu/build.toml").write_text("[general]\n")
    whys.append(absent("relu", str(tmp_path)))
    assert all(why is not None and "relu" in why for why in whys) and len(set(whys)) == 3, whys
