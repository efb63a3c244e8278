"""Recordings on disk: written, read, and refused when altered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models.recording import (
    RecordedReply,
    RecordingManifest,
    RecordingMismatch,
    RecordingModel,
    ReplyKey,
    create,
    load,
    write_reply,
)
from harness.records import Reply, Request, Usage

Ask = Callable[..., Request]
MANIFEST = RecordingManifest(
    model_label="acme/one", date="2026-11-21T10:00:00+00:00", tasks={"l1/add": "d1"}, skills={"cuda": "d2"}
)


def reply(text: str = "a project") -> Reply:
    """A reply with every field set."""
    return Reply(
        text=text,
        stop="end",
        model_label="one-2026",
        created="2026-11-21T10:00:00+00:00",
        usage=Usage(input_tokens=1, cached_input_tokens=0, output_tokens=2),
        cost_usd=0.25,
        latency_s=1.5,
    )


class Fake:
    """A model that answers with a count."""

    name = "acme/one"

    def __init__(self) -> None:
        self.calls = 0

    def complete(self, request: Request) -> Reply:
        self.calls += 1
        return reply(f"reply {self.calls}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty recording."""
    made = tmp_path / "recording"
    create(made, MANIFEST)
    return made


def test_what_is_written_is_read(folder: Path, ask: Ask) -> None:
    """Manifest, prompts and replies survive the disk; the layout is the documented one."""
    first, later = ask("naïve ✓", repeat=2), ask("naïve ✓, then", repeat=2, turn=1)
    path = write_reply(folder, first, "with_skill", reply())
    write_reply(folder, later, "with_skill", reply("second"))
    assert path == folder / "replies" / "l1__add" / "with_skill" / "2.json"
    assert sorted(p.name for p in path.parent.iterdir()) == ["2-turn1.json", "2.json"]
    recording = load(folder)
    assert recording.manifest == MANIFEST
    assert recording.replies == {
        ReplyKey("l1__add", "with_skill", 2, 0): RecordedReply(
            prompt=first.messages, prompt_digest=first.prompt_digest, reply=reply()
        ),
        ReplyKey("l1__add", "with_skill", 2, 1): RecordedReply(
            prompt=later.messages, prompt_digest=later.prompt_digest, reply=reply("second")
        ),
    }
    assert set(json.loads(path.read_text())) == {"prompt", "prompt_digest", "reply"}


@pytest.mark.parametrize("what", ["prompt", "prompt_digest"])
def test_a_tampered_prompt_is_refused(folder: Path, ask: Ask, what: str) -> None:
    """A prompt or digest that was edited after the fact is found out, and the file is named."""
    path = write_reply(folder, ask(), "without_skill", reply())
    stored = json.loads(path.read_text())
    if what == "prompt":
        stored["prompt"][-1]["content"] += " "
    else:
        stored["prompt_digest"] = "0" * 64
    path.write_text(json.dumps(stored))
    with pytest.raises(UsageError, match=r"without_skill.0\.json: .*changed after it was recorded"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("replies/l1__add/without_skill/0.json", "{", "no JSON object"),
        ("replies/l1__add/without_skill/0.json", "[]", "no JSON object"),
        ("replies/l1__add/without_skill/0.json", '{"prompt": []}', "prompt_digest: Field required"),
        ("replies/l1__add/without_skill/zero.json", "{}", "expected <repeat>.json"),
        ("recording.json", '{"schema_version": 9}', "schema_version 9; this liftbench reads 1"),
        ("recording.json", '{"model_label": "a/b"}', "date: Field required"),
    ],
)
def test_a_damaged_recording_is_refused_by_file(folder: Path, name: str, text: str, why: str) -> None:
    """A file that is no record is a usage error that names it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(UsageError, match=why) as caught:
        load(folder)
    assert path.name in str(caught.value)


def test_a_folder_without_a_manifest_is_no_recording(tmp_path: Path) -> None:
    """A wrong path is told as such."""
    with pytest.raises(UsageError, match=r"is no recording: it has no recording\.json"):
        load(tmp_path)


def test_tasks_and_skills_are_pinned(folder: Path) -> None:
    """A task or skill that changed since, or was never recorded, is refused with the way out."""
    recording = load(folder)
    recording.check({"l1/add": "d1"}, {"cuda": "d2"})
    recording.check({}, {})
    with pytest.raises(RecordingMismatch, match=r"task l1/add has changed.*frozen copies"):
        recording.check({"l1/add": "other"}, {})
    with pytest.raises(RecordingMismatch, match="skill cuda has changed"):
        recording.check({}, {"cuda": "other"})
    with pytest.raises(RecordingMismatch, match="holds no task l1/mul; it holds l1/add"):
        recording.check({"l1/mul": "d1"}, {})


def test_a_recording_is_continued_only_as_itself(folder: Path) -> None:
    """A new recording is a new folder; the same one may go on at a later date."""
    create(folder, MANIFEST.model_copy(update={"date": "2026-11-22T00:00:00+00:00"}))
    assert load(folder).manifest.date == MANIFEST.date
    for change in ({"model_label": "acme/two"}, {"tasks": {}}, {"skills": {"cuda": "d3"}}):
        with pytest.raises(UsageError, match="name a new folder"):
            create(folder, MANIFEST.model_copy(update=change))


def test_a_recording_model_keeps_what_it_is_paid_for(folder: Path, ask: Ask) -> None:
    """Every reply passes through unchanged and lies in the folder of its arm; a repeated one wins."""
    inner = Fake()
    model = RecordingModel(inner, folder)
    request = ask(arm="with_skill-0123abcd")
    assert model.name == "acme/one"
    assert [model.complete(request).text for _ in range(2)] == ["reply 1", "reply 2"]
    [(key, entry)] = load(folder).replies.items()
    assert key == ReplyKey("l1__add", "with_skill-0123abcd", 0, 0)
    assert entry.reply == reply("reply 2")


def test_two_recordings_do_not_share_a_folder(folder: Path, ask: Ask) -> None:
    """Another prompt at the same place is refused before the reply is paid for; a later turn may differ."""
    inner = Fake()
    model = RecordingModel(inner, folder)
    model.complete(ask("one"))
    model.complete(ask("compiler said a", turn=1))
    model.complete(ask("compiler said b", turn=1))
    with pytest.raises(RecordingMismatch, match="reply to another prompt"):
        model.complete(ask("two"))
    assert inner.calls == 3


def test_a_recording_model_wants_a_recording_of_its_own_model(folder: Path, tmp_path: Path) -> None:
    """The folder must have been created, and for this very model."""

    class Other(Fake):
        name = "acme/two"

    with pytest.raises(UsageError, match="recording of acme/one, not of acme/two"):
        RecordingModel(Other(), folder)
    with pytest.raises(UsageError, match="cannot be read"):
        RecordingModel(Fake(), tmp_path / "nowhere")


@pytest.mark.parametrize(("task", "arm"), [("..", "a"), ("l1/add", "../a"), ("l1/add", ""), ("a b", "a")])
def test_names_stay_inside_the_folder(folder: Path, ask: Ask, task: str, arm: str) -> None:
    """A task or arm that is no plain name cannot lead a file elsewhere."""
    with pytest.raises(UsageError, match="cannot be a folder name"):
        write_reply(folder, ask(task=task), arm, reply())


def test_a_full_disk_is_told(folder: Path, ask: Ask) -> None:
    """A reply that cannot be stored is an error with the path, not a silent loss."""
    (folder / "replies").write_text("in the way")
    with pytest.raises(UsageError, match=r"0\.json cannot be written"):
        write_reply(folder, ask(), "without_skill", reply())
