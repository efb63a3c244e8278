"""The table of what a forger can still gain: its attacks and its lines, without grading."""

from __future__ import annotations

from harness.suite.catalogue import read_project
from tests.fakes.overlays import ZOO
from tools.zoo.gain import KERNEL, PACKAGE, SIZES, attacks, claims, skipping


def test_attacks_change_files_that_the_bases_have() -> None:
    """Every attack replaces files of every base that it is laid over, and claims are scaled as named."""
    for size in SIZES:
        paths = {file.path for file in read_project(ZOO / size.base).files}
        for attack in attacks():
            if attack.any_kernel or size.base == "base":
                assert set(attack.files) <= paths
    assert claims(0.9).files[PACKAGE].count("* 0.9)") == 2
    assert all(KERNEL not in attack.files for attack in attacks() if attack.any_kernel)
    assert "one in 50: x1.02, missed 0.36" in skipping(50)
