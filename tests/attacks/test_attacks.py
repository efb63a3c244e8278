"""All attacks on all backends that this machine has, against the table of what is expected."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sandboxes.job import RoleName
from tools.attacks.catalogue import FOLDER, all_attacks, build_battery
from tools.attacks.expected import COLUMNS, HOLES, Column, differences
from tools.attacks.report import Unavailable, measure

LEAST_ATTACKS = 60


@pytest.fixture(scope="module")
def battery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of all attacks, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: attacks are compiled here (apt-get install gcc)")
    return build_battery(tmp_path_factory.mktemp("battery"))


def _verdicts(column: Column, battery: Path, role: RoleName) -> dict[str, str]:
    """What came of each attack; fails where one could not be measured, or was not expected."""
    try:
        report = measure(column, battery, role)
    except Unavailable as reason:
        pytest.skip(f"{column}: {reason}")
    verdicts: dict[str, str] = {one.name: one.verdict for one in report.observations}
    details = {one.name: one.detail for one in report.observations}
    surprises = differences(column, verdicts)
    assert [f"{line}: {details[line.partition(':')[0]]}" for line in surprises] == []
    unmeasured = {name: details[name] for name, verdict in verdicts.items() if verdict == "unmeasured"}
    # Only what needs something of the machine may be left out; everything else must have run.
    assert set(unmeasured) <= {"net_netlink"}, unmeasured
    return verdicts


@pytest.mark.slow
@pytest.mark.parametrize(
    "column", [pytest.param(one, marks=pytest.mark.docker) if one == "docker" else one for one in COLUMNS]
)
def test_every_attack_ends_as_expected(column: Column, battery: Path) -> None:
    """What is promised holds against every attack, and holes are exactly those that are documented."""
    verdicts = _verdicts(column, battery, "run")
    assert set(verdicts) == {attack.name for attack in all_attacks()}


@pytest.mark.parametrize(
    "column", [pytest.param("docker", marks=pytest.mark.docker), "bubblewrap", "landlock"]
)
def test_builders_are_held_as_well(column: Column, battery: Path) -> None:
    """In the role `build`, which has more programs and its own filter, the same attacks end the same way."""
    assert len(_verdicts(column, battery, "build")) >= LEAST_ATTACKS


def test_there_are_many_attacks_and_each_states_its_promise() -> None:
    """At least 60 attacks, each with a promise of its own."""
    attacks = all_attacks()
    assert len(attacks) >= LEAST_ATTACKS
    assert len({attack.promise for attack in attacks}) == len(attacks)


def test_holes_are_of_known_attacks() -> None:
    """The table of holes names no attack that does not exist."""
    names = {attack.name for attack in all_attacks()}
    assert {name for holes in HOLES.values() for name in holes} <= names


def test_an_unlisted_hole_and_a_closed_one_are_both_told() -> None:
    """The comparison fails in both directions, and lets machine-dependent ones pass."""
    assert differences("docker", {"net_tcp4": "leaked", "net_udp": "held"}) == ["net_tcp4: got through"]
    assert "net_tcp4: held, but is listed as open" in differences("local", {"net_tcp4": "held"})[0]
    assert differences("local", {"io_uring": "held"}) == differences("local", {"io_uring": "leaked"}) == []


def test_every_attack_is_a_program_of_its_own(tmp_path: Path) -> None:
    """Any file of the folder compiles alone, so that one attack can be tried by hand."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source = FOLDER / "net_tcp4.c"
    done = subprocess.run(["gcc", str(source), "-o", str(tmp_path / "one")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
