"""`liftbench build` as a user meets it, with real compilers for the CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "tests/zoo/base"


def liftbench_build(cache: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, for the CPU."""
    command = [sys.executable, "-m", "harness.cli.main", "build", *map(str, words), "--target", "cpu"]
    return subprocess.run(
        [*command, "--sandbox", "local", "--cache", str(cache)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "COLUMNS": "100", "HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The zoo's base project with a type that does not exist."""
    folder = tmp_path / "broken"
    shutil.copytree(BASE, folder)
    binding = next(folder.glob("torch-ext/*.cpp"))
    binding.write_text(binding.read_text() + "\nflaot mistyped;\n")
    return folder


@pytest.mark.slow
def test_a_variant_is_put_where_kernels_looks(tmp_path: Path, broken: Path) -> None:
    """OUT/NAME/build/<variant>/ holds the package; a failed project makes it 3; --json is a line each."""
    done = liftbench_build(tmp_path / "cache", BASE, broken, "--out", tmp_path / "out")
    assert done.returncode == 3, done.stderr
    variants = list((tmp_path / "out/base/build").iterdir())
    assert len(variants) == 1 and (variants[0] / "metadata.json").is_file()
    assert len(list(variants[0].glob("*.abi3.so"))) == 1
    assert not (tmp_path / "out/broken").exists()
    assert "compile_error" in done.stdout and "flaot mistyped;" in done.stdout and "syntax" in done.stdout
    done = liftbench_build(tmp_path / "cache", broken, "--json")
    (result,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 3 and result["diagnostics"][0]["source"] == "flaot mistyped;"


def test_what_is_no_project_is_a_usage_error(tmp_path: Path) -> None:
    """Before anything is compiled, also when another project is fine."""
    done = liftbench_build(tmp_path / "cache", BASE, tmp_path)
    assert done.returncode == 2 and "it has no build.toml" in done.stderr
    assert not (tmp_path / "cache/builds").exists()
