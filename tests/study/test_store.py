"""The run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.records import Message, Request, Sampling, TrialKey
from harness.study.store import RunStore, all_runs, find_run, sole_writer
from tests.fakes.trials import grade, reply, run_record, trial


def key(repeat: int = 0) -> TrialKey:
    return TrialKey(task="l1/rms_norm", model="fake/a b:c", arm="without_skill", repeat=repeat)


def request(turn: int = 0, step: int = 0) -> Request:
    messages = (Message(role="user", content=f"{turn} {step}"),)
    return Request(messages=messages, sampling=Sampling(), task="t", arm="a", repeat=0, turn=turn, step=step)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path / "20260101T000000Z-x-12345678", run_record())


def test_what_was_appended_is_loaded(store: RunStore) -> None:
    """Trials come back equal, the last one for a key winning."""
    first, second = trial(key(0)), trial(key(1))
    store.append(first)
    store.append(second)
    replaced = first.model_copy(update={"finished": "2026-02-02T00:00:00+00:00"})
    store.append(replaced)
    assert store.load() == [replaced, second]
    assert store.run() == run_record()


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_a_torn_last_line_is_owed_and_hurts_no_other(store: RunStore, cut: int) -> None:
    """A crash in the middle of a line loses that trial only, and the next append is whole."""
    store.append(trial(key(0)))
    store.append(trial(key(1)))
    path = store.folder / "trials.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    left = [t.key for t in store.load()]
    assert left[0] == key(0)
    assert len(left) == (2 if cut == 1 else 1)
    store.append(trial(key(2)))
    assert [t.key for t in store.load()] == [*left, key(2)]


def test_every_exchange_of_a_trial_has_files_of_its_own(store: RunStore) -> None:
    """The first lies where a one-shot trial's lies; later steps have a number, later turns a folder."""
    names = {
        (0, 0): "prompt.json",
        (0, 2): "prompt-step-2.json",
        (1, 0): "turn-1/prompt.json",
        (2, 1): "turn-2/prompt-step-1.json",
    }
    for (turn, step), name in names.items():
        asked = request(turn, step)
        store.write_prompt(key(), asked)
        store.write_reply(key(), "g", asked, reply(f"{turn} {step}"))
        assert (store.turn_folder(key()) / name).is_file()
        assert (store.turn_folder(key()) / name.replace("prompt", "reply")).is_file()
    for turn, step in names:
        assert store.request(key(), turn=turn, step=step) == request(turn, step)
        kept = store.paid_reply(key(), "g", turn=turn, step=step)
        assert kept is not None and kept.text == f"{turn} {step}"
    assert store.paid_reply(key(), "another prompt") is None
    with pytest.raises(UsageError, match=r"turn-1/prompt-step-1\.json"):
        store.request(key(), turn=1, step=1)


def test_one_writer_at_a_time(store: RunStore) -> None:
    """A second liftbench on the same run is refused, not interleaved."""
    folder = store.folder
    with sole_writer(folder), pytest.raises(UsageError, match="another liftbench"), sole_writer(folder):
        pass
    with sole_writer(folder):
        pass


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "damaged"), ('{"schema_version": 99}', "schema version 99"), ("[]", "damaged"), ("{}", "None")],
)
def test_a_run_that_cannot_be_read_is_refused_by_name(store: RunStore, text: str, said: str) -> None:
    """Damage and other schema versions are usage errors that name the file."""
    (store.folder / "run.json").write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        store.run()
    assert "run.json" in str(caught.value)


def test_runs_are_found_by_folder_name_and_end(store: RunStore) -> None:
    """`show RUN` takes a path, a name, the hash, or `last`."""
    root = store.folder.parent
    for name in (str(store.folder), store.folder.name, "12345678", "last"):
        assert find_run(root, name).folder == store.folder
    with pytest.raises(UsageError, match="no run"):
        find_run(root, "nope")
    assert [s.folder for s in all_runs(root)] == [store.folder]


def test_the_parts_of_a_grade_are_kept_as_far_as_they_were_reached(store: RunStore) -> None:
    """A build failure leaves neither check.json nor timing.json, not even those of an interrupted grade."""
    stale = store.turn_folder(key()) / "timing.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    store.write_grade(key(), grade())
    assert list(stale.parent.iterdir()) == []
