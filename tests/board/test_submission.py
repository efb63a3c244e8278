"""Submissions: what is forged, dropped, swapped or secret is refused before any figure is believed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.board.entries import entries_of, read_run
from harness.board.submission import (
    MANIFEST,
    MOST_FILE_BYTES,
    contradictions,
    delist,
    duplicates,
    faults_of,
    pack,
    read_submission,
)
from harness.cli.main import run as command
from harness.errors import UsageError
from harness.records import Project, ProjectFile
from harness.study.store import RunStore
from tests.board.runs import speed, store
from tests.report import factories as make

PROJECT = Project(files=(ProjectFile(path="build.toml", text="[general]\n"),))


def submitted(root: Path, name: str = "one", speedup: float = 2.0, **changes: object) -> Path:
    """A run folder whose projects lie where they should, of the digest that was graded."""
    folder = store(root, name, speed(speedup), **changes)
    text = (folder / "trials.jsonl").read_text()
    old = {trial.turns[-1].project for trial in RunStore(folder).load()}
    lock = RunStore(folder).run().lock
    for digest in old:
        text = text.replace(f'"{digest}"', f'"{PROJECT.digest}"')
    lines = []
    for line in text.splitlines():
        trial = json.loads(line)
        trial["turns"][-1]["grade"]["task_digest"] = lock.tasks[trial["key"]["task"]]
        lines.append(json.dumps(trial))
    (folder / "trials.jsonl").write_text("\n".join(lines) + "\n")
    made = RunStore(folder)
    for trial in made.load():
        made.write_project(trial.key, PROJECT)
    return folder


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A folder of submissions with one run."""
    pack(read_run(submitted(tmp_path / "runs")), tmp_path / "board")
    return tmp_path / "board"


def test_a_packed_run_is_what_the_board_reads(board: Path) -> None:
    """Records, replies and projects are there, and nothing that a report can be made from again."""
    one = read_submission(board / "one")
    assert list(faults_of(one)) == []
    assert {e.run_id for e in entries_of([one])} == {"one"}
    assert command(["board", "check", str(board)]) == 0


def test_a_second_copy_is_refused(tmp_path: Path, board: Path) -> None:
    """A run is packed once; the same replies under another name are found."""
    with pytest.raises(UsageError, match="exists already"):
        pack(read_run(tmp_path / "runs" / "one"), board)
    text = (board / "one" / "run.json").read_text().replace('"one"', '"two"')
    shutil.copytree(tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    (tmp_path / "runs" / "two" / "run.json").write_text(text)
    for name in ("one", "two"):
        path = tmp_path / "runs" / name / "trials.jsonl"
        path.write_text(path.read_text().replace('"text":""', '"text": "a reply"'))
        path.write_text(path.read_text().replace('"text": ""', '"text": "a reply"'))
    found = [read_run(tmp_path / "runs" / name) for name in ("one", "two")]
    assert list(duplicates(found)) == [f"two: its reply {found[1].trials[0].key.folder} is that of one"]


def edit_record(folder: Path) -> None:
    path = folder / "trials.jsonl"
    path.write_text(path.read_text().replace('"value": 2.0', '"value": 9.0', 1) + "\n")


def swap_project(folder: Path) -> None:
    next(folder.rglob("build.toml")).write_text("[general]\nname = 'other'\n")


def drop_reply(folder: Path) -> None:
    next(folder.rglob("build.toml")).unlink()


def link_out(folder: Path) -> None:
    (folder / "trials" / "link").symlink_to("/etc/passwd")


def huge_file(folder: Path) -> None:
    with (folder / "trials" / "bomb").open("wb") as file:
        os.truncate(file.fileno(), MOST_FILE_BYTES + 1)


def rename(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    text = (folder / "run.json").read_text().replace('"one"', '"../one"')
    (folder / "run.json").write_text(text)
    manifest["run.json"] = __import__("hashlib").sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (edit_record, r"not the files of manifest\.json: trials\.jsonl"),
        (swap_project, "not the files of"),
        (drop_reply, "not the files of"),
        (link_out, "is a link"),
        (huge_file, "larger than 64 MiB"),
        (rename, "must have its name"),
    ],
)
def test_a_forged_submission_is_refused(board: Path, forge: Callable[[Path], None], said: str) -> None:
    """Edited records, swapped or missing projects, links, huge files and odd names are named."""
    forge(board / "one")
    with pytest.raises(UsageError, match=said):
        read_submission(board / "one")
    assert command(["board", "check", str(board)]) == 3


def test_a_manifest_made_again_does_not_hide_a_swap(tmp_path: Path) -> None:
    """The graded project's digest stands in the trial: another project is seen all the same."""
    folder = submitted(tmp_path)
    swap_project(folder)
    (fault,) = faults_of(read_run(folder))
    assert "the stored project is not the one that was graded" in fault
    with pytest.raises(UsageError, match="the board would refuse this run"):
        pack(read_run(folder), tmp_path / "board")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-2], "2 of 100 planned trials are missing"),
        (lambda lines: [*lines, lines[0]], "101 lines for 100 trials"),
        (lambda lines: [*lines, "{}"], "101 lines for 100 trials"),
    ],
)
def test_dropped_and_repeated_trials_are_seen(
    tmp_path: Path, change: Callable[[list[str]], list[str]], said: str
) -> None:
    """A lucky repeat cannot be kept alone, nor an unlucky one be covered by a second line."""
    folder = submitted(tmp_path)
    path = folder / "trials.jsonl"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    assert any(said in fault for fault in faults_of(read_run(folder)))


def test_secrets_are_not_published(tmp_path: Path) -> None:
    """A reply or prompt that holds a key is named, and nothing is packed."""
    folder = submitted(tmp_path)
    trial = RunStore(folder).load()[0]
    (folder / trial.key.folder / "prompt.json").write_text(f"key: sk-ant-{'a1' * 24}")
    assert any("looks like a key" in fault for fault in faults_of(read_run(folder)))


def test_a_claim_that_a_regrade_contradicts_is_delisted_and_stays_visible(
    board: Path, tmp_path: Path
) -> None:
    """Slower than claimed beyond both intervals: the reason stands at the entry, which loses its rank."""
    one = read_submission(board / "one")
    assert one.trials[0].grade is not None and one.trials[0].grade.timing is not None
    honest = read_run(submitted(tmp_path, "again", 2.0, regraded_from="one"))
    slow = read_run(submitted(tmp_path, "slow", 1.0, regraded_from="one"))
    assert list(contradictions(one, honest)) == []
    found = list(contradictions(one, slow))
    assert found and all("intervals do not meet" in line for line in found)
    delist(board, {"one": found[0]})
    assert all(e.not_ranked[0].startswith("delisted: ") for e in entries_of([read_submission(board / "one")]))


def test_a_wrong_claim_is_a_contradiction(board: Path, tmp_path: Path) -> None:
    """Correct as claimed, wrong when graded again."""
    one = read_submission(board / "one")
    folder = store(tmp_path, "again", speed(2.0), regraded_from="one", repeats=1)
    made = RunStore(folder)
    trial = made.load()[0]
    arm = make.WITHOUT if trial.key.arm == make.WITHOUT.id else make.WITH
    made.append(
        make.trial(trial.key.task, arm, make.Cause.WRONG_VALUES, "worst error 41", model=trial.key.model)
    )
    found = list(contradictions(one, read_run(folder)))
    assert f"{trial.key.folder}: claimed correct, graded again wrong_result" in found
