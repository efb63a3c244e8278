"""Submissions: what is forged, dropped, swapped or secret is refused before any figure is believed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.board.checking import check_folder
from harness.board.kept import Kept
from harness.board.runs import read_run
from harness.board.site import build_site
from harness.board.submission import (
    MANIFEST,
    MOST_FILE_BYTES,
    faults_of,
    file_digests,
    pack,
    published,
    read_submission,
)
from harness.cli.main import run as command
from harness.errors import UsageError
from harness.records import Request
from harness.study.plan import generation_key
from harness.study.store import RunStore
from tests.board.runs import edit_run, edit_trials, shipped, submitted


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A folder of submissions with one run."""
    pack(read_run(submitted(tmp_path / "runs")), tmp_path / "board")
    return tmp_path / "board"


def seal(folder: Path) -> None:
    """Write the manifest again, as whoever edits a record would."""
    (folder / MANIFEST).write_text(json.dumps(file_digests(folder)))


def test_a_packed_run_is_what_the_board_reads(board: Path) -> None:
    """Records, prompts, replies and projects are there, and nothing that a report can be made from again."""
    one = read_submission(board / "one")
    assert list(faults_of(one, shipped())) == []
    found = check_folder(board, shipped())
    assert (found.faults, found.unchecked, found.notes) == ({}, {}, [])


@pytest.mark.slow
def test_the_commands_check_and_build(
    tmp_path: Path, board: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A skill that the board lacks is a note; a site is written."""
    assert command(["board", "check", str(board)]) == 0
    assert "prompts with cuda-kernel-builder not compared" in capsys.readouterr().out
    site = ["board", "build", str(board / "one"), "--site", str(tmp_path / "site")]
    assert command(site) == 0 and (tmp_path / "site" / "index.html").exists()


@pytest.mark.slow
def test_a_second_copy_is_refused(tmp_path: Path, board: Path) -> None:
    """A run is packed once; its replies under another name are found, white space apart."""
    with pytest.raises(UsageError, match="exists already"):
        pack(read_run(tmp_path / "runs" / "one"), board)
    shutil.copytree(board / "one", board / "two")
    edit_run(board / "two", lambda run: run.update(run_id="two"))
    seal(board / "two")
    found = check_folder(board, shipped())
    assert found.faults == {"two": "50 replies of one stand in it too"}
    with pytest.raises(UsageError, match="two: 50 replies of one"):
        build_site(tmp_path / "site", [board / "one", board / "two"])
    assert not (tmp_path / "site" / "index.html").exists()


def edit_record(folder: Path) -> None:
    path = folder / "trials.jsonl"
    path.write_text(path.read_text().replace('"value":2.0', '"value":9.0', 1))


def swap_project(folder: Path) -> None:
    next(folder.rglob("build.toml")).write_text("[general]\nname = 'other'\n")


def drop_reply(folder: Path) -> None:
    next(folder.rglob("build.toml")).unlink()


def link_out(folder: Path) -> None:
    next(folder.rglob("build.log")).unlink()
    (folder / "trials" / "build.log").symlink_to("/etc/passwd")


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "trials" / "build.log")


def huge_file(folder: Path) -> None:
    (folder / "trials" / "bomb").touch()
    os.truncate(folder / "trials" / "bomb", MOST_FILE_BYTES + 1)


def many_large_files(folder: Path) -> None:
    for number in range(9):
        (folder / "trials" / f"bomb-{number}").touch()
        os.truncate(folder / "trials" / f"bomb-{number}", MOST_FILE_BYTES)


def deep_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[" * 100_000)


def deep_run(folder: Path) -> None:
    (folder / "run.json").write_text('{"a":' * 100_000)
    seal(folder)


def no_manifest(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "aa")
    (folder.parent / "aa" / MANIFEST).unlink()


def rename(folder: Path) -> None:
    text = (folder / "run.json").read_text().replace('"one"', '"../one"')
    (folder / "run.json").write_text(text)
    seal(folder)


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (edit_record, r"not the files of manifest\.json: trials\.jsonl"),
        (swap_project, "not the files of"),
        (drop_reply, "not the files of"),
        (link_out, "is a link"),
        (fifo, "or no file"),
        (huge_file, "larger than 64 MiB"),
        (many_large_files, "more than 512 MiB"),
        (deep_manifest, "cannot be read"),
        (deep_run, "is damaged"),
        (rename, "must have its name"),
    ],
)
def test_a_forged_submission_is_refused(board: Path, forge: Callable[[Path], None], said: str) -> None:
    """Edited records, swapped projects, links, bombs and odd names: by the check and by the build."""
    forge(board / "one")
    for read in (read_submission, published):
        with pytest.raises(UsageError, match=said):
            read(board / "one")
    assert "one" in check_folder(board, shipped()).faults


@pytest.mark.parametrize("forge", [huge_file, many_large_files, link_out])
def test_a_bomb_is_refused_before_its_digest_is_taken(
    board: Path, forge: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept.of(board / "site", (), None)
    forge(board / "one")
    monkeypatch.setattr("harness.board.kept.file_digests", lambda folder: pytest.fail("read"))
    with pytest.raises(UsageError, match=r"larger than|more than|is a link"):
        kept.stamp(board / "one")


def test_a_folder_without_a_manifest_beside_submissions_is_none(board: Path) -> None:
    """Leaving the manifest out does not turn a submission into a run of the owner's."""
    no_manifest(board / "one")
    with pytest.raises(UsageError, match=r"manifest\.json cannot be read"):
        published(board / "aa")
    assert "aa" in check_folder(board, shipped()).faults


def other_prompt(folder: Path) -> None:
    path = next(folder.rglob("prompt.json"))
    path.write_text(path.read_text().replace('"content":"', '"content":"The answer is below. ', 1))


def more_tokens(folder: Path) -> None:
    for path in folder.rglob("prompt.json"):
        path.write_text(path.read_text().replace('"max_output_tokens":16000', '"max_output_tokens":99000'))


def easier_task(folder: Path) -> None:
    task = next(iter(shipped().tasks))
    edit_run(folder, lambda run: run["lock"]["tasks"].update({task: "f" * 64}))

    def graded(trial: dict[str, Any]) -> None:
        if trial["key"]["task"] == task:
            trial["turns"][0]["grade"]["task_digest"] = "f" * 64

    edit_trials(folder, graded)


def more_families(folder: Path) -> None:
    edit_run(folder, lambda run: run["lock"].update(families={t: f"{t}!" for t in run["lock"]["families"]}))


def own_prompts(folder: Path) -> None:
    """Prompts, their digests and generation keys agree with each other, and not with the board's."""
    store = RunStore(folder)
    requests = {}
    for trial in store.load():
        told = store.request(trial.key)
        said = told.messages[0].model_copy(update={"content": "Copy this kernel."})
        requests[trial.key.folder] = Request(**{**dict(told), "messages": (said, *told.messages[1:])})
        store.write_prompt(trial.key, requests[trial.key.folder])
    prompts = {f"{r.task}/{r.arm}": r.prompt_digest for r in requests.values()}
    edit_run(folder, lambda run: run["lock"].update(prompts=prompts))
    keys = {t.key.folder: generation_key(t.key, requests[t.key.folder]) for t in store.load()}
    by_key = iter([t.key.folder for t in store.load()])
    edit_trials(folder, lambda trial: trial.update(generation_key=keys[next(by_key)]))


def other_reply(folder: Path) -> None:
    edit_trials(folder, lambda trial: trial["turns"][0]["reply"].update(text="no project"))


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (swap_project, "the stored project is not the one that was graded"),
        (other_reply, "its reply does not hold the project that was graded"),
        (other_prompt, "its prompt is not the one that was paid for"),
        (more_tokens, "its prompt is not the one that was paid for"),
        (own_prompts, "the board would send another prompt"),
        (easier_task, "not the board's version of"),
        (more_families, "not the board's version of"),
        (lambda folder: next(folder.rglob("prompt.json")).unlink(), "its prompt is not there"),
        (lambda folder: edit_trials(folder, lambda t: t["turns"][0]["grade"].update(task_digest="0" * 64)),
         "graded on another version of the task than the run says"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_edits_that_agree_with_each_other_are_seen(
    board: Path, forge: Callable[[Path], None], said: str
) -> None:
    """A manifest made again hides no swap: the board compares with its own tasks and prompts."""
    forge(board / "one")
    seal(board / "one")
    assert said in check_folder(board, shipped()).faults["one"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-2], "2 of 100 planned trials are missing"),
        (lambda lines: [*lines, lines[0]], "101 lines for 100 trials"),
        (lambda lines: [*lines, "{}"], "101 lines for 100 trials"),
    ],
)
def test_dropped_and_repeated_trials_are_seen(
    board: Path, change: Callable[[list[str]], list[str]], said: str
) -> None:
    """A lucky repeat cannot be kept alone, nor an unlucky one be covered by a second line."""
    path = board / "one" / "trials.jsonl"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    seal(board / "one")
    assert any(said in fault for fault in faults_of(read_submission(board / "one")))
    with pytest.raises(UsageError, match=said):
        published(board / "one")


def test_a_trial_that_was_lost_and_tried_again_is_no_repetition(tmp_path: Path) -> None:
    """A resumed run has two lines for it, of which the first is nobody's score."""
    folder = submitted(tmp_path)
    path = folder / "trials.jsonl"
    lost = json.loads(path.read_text().splitlines()[0])
    failure = {"cause": "provider", "message": "529", "at": "2026-03-14T10:21:00Z"}
    lost |= {"turns": [], "infra": True, "failures": [failure]}
    path.write_text(json.dumps(lost) + "\n" + path.read_text())
    assert list(faults_of(read_run(folder))) == []


def test_secrets_are_not_published(tmp_path: Path) -> None:
    """A reply or prompt that holds a key is named, and nothing is packed."""
    folder = submitted(tmp_path)
    next(folder.rglob("build.log")).write_text(f"key: sk-ant-{'a1' * 24}")
    assert any("looks like a key" in fault for fault in faults_of(read_run(folder)))
    with pytest.raises(UsageError, match="the board would refuse this run"):
        pack(read_run(folder), tmp_path / "board")


@pytest.mark.parametrize(
    "task", ["../../etc", "l1/../../x", "/etc/passwd", "l1", "l1/x\0", "..", "l1/" + "x" * 200]
)
def test_a_task_that_is_a_path_is_refused(tmp_path: Path, task: str) -> None:
    """Pages and transcripts of a trial would be read and written elsewhere."""
    folder = submitted(tmp_path)
    old = next(iter(shipped().tasks))
    for name in ("run.json", "trials.jsonl"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace(json.dumps(old), json.dumps(task)))
    with pytest.raises(UsageError, match="is no name of a task"):
        read_run(folder)


@pytest.mark.parametrize("key", [{"task": "../../../etc/x"}, {"arm": "../../../../etc"}, {"arm": "a/b"}])
def test_a_trial_that_leads_elsewhere_is_refused(tmp_path: Path, key: dict[str, str]) -> None:
    """One that is not in the plan too."""
    folder = submitted(tmp_path)
    edit_trials(folder, lambda trial: trial["key"].update(key))
    with pytest.raises(UsageError, match="a trial's folder"):
        read_run(folder)


@pytest.mark.parametrize(
    "text",
    ["- 1", "[" * 100_000, "a: &a [x]\nb: *a\n", "&a [1, 2]: *a", "- {task: l1/x, verdict: fine}", "\xff"],
)
def test_a_bad_audit_is_refused(tmp_path: Path, text: str) -> None:
    """Deep nesting and aliases too, which may grow without bound."""
    folder = submitted(tmp_path)
    (tmp_path / "one.audit.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"one\.audit\.yaml"):
        read_run(folder)


def test_a_submitter_writes_no_verdict(tmp_path: Path) -> None:
    """An audit inside a run's folder is neither packed nor read."""
    folder = submitted(tmp_path / "runs")
    (folder / "audit.yaml").write_text("- 1")
    made = pack(read_run(folder), tmp_path / "board")
    assert not (made / "audit.yaml").exists()
    (made / "audit.yaml").write_text("[{verdict: clean}]")
    seal(made)
    assert read_submission(made).audits == ()
