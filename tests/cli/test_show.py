"""`liftbench show`: one trial, or the commands for those that match."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from harness.cli.main import command_tree
from harness.cli.runs import find_trials, print_matches
from harness.errors import UsageError
from harness.report.run_comparison import name_of
from harness.study.store import RunStore
from tests.report import factories as make

ROOT = Path(__file__).resolve().parents[2]
TASKS = {"l1/rms_norm": "norm", "l1/softmax": "softmax"}


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Five replies per task and arm: correct with the skill, not built without it."""
    store = RunStore.create(tmp_path / "runs" / "20260101T000000Z-some-0", make.run(TASKS, repeats=5))
    for task in TASKS:
        for repeat in range(5):
            store.append(make.trial(task, make.WITHOUT, repeat=repeat))
            store.append(make.trial(task, make.WITH, speedup=1.5, repeat=repeat))
    return store


def test_trials_that_match_are_listed_with_verdict_and_command(store: RunStore) -> None:
    """One line each, whatever the terminal's width; each command names exactly that trial."""
    out = io.StringIO()
    found = find_trials(store, "l1/rms_norm")
    print_matches(found, ["liftbench", "show", "last"], Console(file=out, width=80))
    head, *lines = out.getvalue().splitlines()
    assert head == "10 trials match. To see one:"
    commands = [line[line.index("liftbench") :] for line in lines]
    named = [shlex.split(command)[3] for command in commands]
    assert all(shlex.split(command)[:3] == ["liftbench", "show", "last"] for command in commands)
    assert [[name_of(t.key) for t in find_trials(store, name)] for name in named] == [[n] for n in named]
    assert len(set(named)) == 10
    of_skill = [line.split() for line in lines if "/with_skill-" in line]
    assert all(words[:2] == ["correct", "1.50x"] for words in of_skill) and len(of_skill) == 5


def test_the_readmes_example_works(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a run of several arms and replies, in the folder that an eval writes to; and then each command."""
    (example,) = [
        shlex.split(line.partition("#")[0])
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("liftbench show ")
    ]
    monkeypatch.chdir(store.folder.parent.parent)
    command_tree().main(example[1:], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "10 trials match. To see one:"
    for line in lines[1:]:
        found = shlex.split(line[line.index("liftbench") :])
        command_tree().main([*found[1:], "--json"], standalone_mode=False)
        assert f'"repeat": {found[-1][-1]}' in capsys.readouterr().out


def test_what_names_no_trial_or_several_is_refused(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No match brings the nearest task, not the names of all trials; --json gives one record, no list."""
    with pytest.raises(UsageError, match=r"no trial of .* matches 'rmsnorm' .*did you mean l1/rms_norm\?$"):
        find_trials(store, "rmsnorm")
    monkeypatch.chdir(store.folder.parent.parent)
    with pytest.raises(UsageError, match="10 trials match 'l1/softmax', and --json prints one"):
        command_tree().main(["show", "last", "l1/softmax", "--json"], standalone_mode=False)
