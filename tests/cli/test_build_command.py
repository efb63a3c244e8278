"""`liftbench build` as a user meets it, with real compilers for the CPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "tests/zoo/base"
Build = Callable[..., tuple[int, str, str]]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Build:
    """Runs it for the CPU: exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "100")

    def invoke(*words: str | Path) -> tuple[int, str, str]:
        own = ["--target", "cpu", "--sandbox", "local", "--cache", tmp_path / "cache"]
        code = run(["build", *map(str, [*words, *own])])
        return code, *capsys.readouterr()

    return invoke


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The zoo's base project with a type that does not exist."""
    folder = tmp_path / "broken"
    shutil.copytree(BASE, folder)
    binding = next(folder.glob("torch-ext/*.cpp"))
    binding.write_text(binding.read_text() + "\nflaot mistyped;\n")
    return folder


@pytest.mark.slow
def test_a_variant_is_put_where_kernels_looks(build: Build, tmp_path: Path, broken: Path) -> None:
    """OUT/NAME/build/<variant>/ holds the package; a failed project makes it 3; --json is a line each."""
    code, out, err = build(BASE, broken, "--out", tmp_path / "out")
    assert code == 3, err
    variants = list((tmp_path / "out/base/build").iterdir())
    assert len(variants) == 1 and (variants[0] / "metadata.json").is_file()
    assert len(list(variants[0].glob("*.abi3.so"))) == 1
    assert not (tmp_path / "out/broken").exists()
    assert "compile_error" in out and "flaot mistyped;" in out and "syntax" in out
    code, out, _ = build(broken, "--json")
    (result,) = [json.loads(line) for line in out.splitlines()]
    assert code == 3 and result["diagnostics"][0]["source"] == "flaot mistyped;"


def test_what_is_no_project_is_a_usage_error(build: Build, tmp_path: Path) -> None:
    """Before anything is compiled, also when another project is fine."""
    code, _, err = build(BASE, tmp_path)
    assert code == 2 and "it has no build.toml" in err
    assert not (tmp_path / "cache/builds").exists()
