"""The run folder."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from harness.atomic import write_atomically
from harness.errors import UsageError
from harness.records import TrialKey
from harness.store import RunStore, all_runs, find_run
from tests.fakes.trials import grade, reply, run_record, trial


def key(repeat: int = 0) -> TrialKey:
    return TrialKey(task="l1/rms_norm", model="fake/a b:c", arm="without_skill", repeat=repeat)


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


def _append_for_ever(folder: str) -> None:
    store = RunStore(Path(folder))
    for repeat in range(100_000):
        store.append(trial(key(repeat)))


def test_kill_9_loses_no_finished_trial(store: RunStore) -> None:
    """Whatever moment a writer is killed at, every whole line is a whole trial in order."""
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=_append_for_ever, args=(str(store.folder),))
    writer.start()
    path = store.folder / "trials.jsonl"
    while not path.exists() or path.stat().st_size < 20_000:
        time.sleep(0.01)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    repeats = [t.key.repeat for t in store.load()]
    assert len(repeats) > 5
    assert repeats == list(range(len(repeats)))


def test_a_paid_reply_is_found_again_for_the_same_prompt_only(store: RunStore) -> None:
    """An interrupted trial does not pay twice; a changed prompt does."""
    from harness.records import Message, Request, Sampling

    request = Request(
        messages=(Message(role="user", content="x"),), sampling=Sampling(), task="t", arm="a", repeat=0
    )
    assert store.paid_reply(key(), "g1") is None
    store.write_reply(key(), "g1", request, reply("hello"))
    assert store.paid_reply(key(), "g1") == reply("hello")
    assert store.paid_reply(key(), "g2") is None
    assert store.request(key()) == request


def test_one_writer_at_a_time(store: RunStore) -> None:
    """A second liftbench on the same run is refused, not interleaved."""
    with (
        store.writer(),
        pytest.raises(UsageError, match="another liftbench"),
        RunStore(store.folder).writer(),
    ):
        pass
    with RunStore(store.folder).writer():
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


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """A reader never sees half a file, and no temporary file is left."""
    path = tmp_path / "a.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_the_parts_of_a_grade_are_kept_as_far_as_they_were_reached(store: RunStore) -> None:
    """A build failure leaves neither check.json nor timing.json."""
    store.write_grade(key(), grade())
    assert not (store.trial_folder(key()) / "check.json").exists()
