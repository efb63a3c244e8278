"""Recordings on disk: written, read, and refused when altered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models.prices import Price
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
from harness.records.base import digest_of
from tests.models.answers import READ, assistant, called, result

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
    assert set(json.loads(path.read_text())) == {"prompt", "tools", "prompt_digest", "reply"}


def test_steps_of_a_turn_are_kept_apart_with_their_tools(folder: Path, ask: Ask) -> None:
    """A reply that calls a tool, and the one that follows, are two files; the tools stand in both."""
    [call] = called("a.md")
    first = ask(tools=(READ,))
    told = (*first.messages, assistant("", call), result(call, "A"))
    calling = reply("").model_copy(update={"stop": "tool", "tool_calls": (call,)})
    write_reply(folder, first, "with_skill", calling)
    names = [
        write_reply(folder, ask(tools=(READ,), messages=told, turn=turn, step=1), "with_skill", reply()).name
        for turn in (0, 2)
    ]
    assert names == ["0-step1.json", "0-turn2-step1.json"]
    replies = load(folder).replies
    assert set(replies) == {
        ReplyKey("l1__add", "with_skill", 0, turn, step) for turn, step in ((0, 0), (0, 1), (2, 1))
    }
    assert replies[ReplyKey("l1__add", "with_skill", 0, 0)].reply == calling
    assert all(entry.tools == (READ,) for entry in replies.values())
    assert replies[ReplyKey("l1__add", "with_skill", 0, 0, 1)].prompt == told


def test_a_later_step_may_be_recorded_again_with_another_prompt(folder: Path, ask: Ask) -> None:
    """Its prompt holds the model's own calls, which differ when a trial is repeated."""
    model = RecordingModel(Fake(), folder)
    model.complete(ask("read a.md", step=1))
    assert model.complete(ask("read b.md", step=1)).text == "reply 2"


def test_a_recording_without_tools_reads_as_before(folder: Path, ask: Ask) -> None:
    """Files from before there were tools, and their digests, stand unchanged."""
    path = write_reply(folder, ask(), "without_skill", reply())
    stored = json.loads(path.read_text())
    assert stored.pop("tools") == [] and stored["reply"].pop("tool_calls") == []
    for message in stored["prompt"]:
        del message["tool_calls"], message["tool_call_id"]
    path.write_text(json.dumps(stored))
    [entry] = load(folder).replies.values()
    assert entry.prompt == ask().messages and entry.tools == ()
    plain = [[message["role"], message["content"]] for message in stored["prompt"]]
    assert stored["prompt_digest"] == digest_of(plain)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_shipped_recordings_load(target: str) -> None:
    """Every reply of the demo still fits its digest."""
    replies = load(Path(__file__).parents[2] / "demo" / "recordings" / target).replies
    assert replies and all(entry.tools == () for entry in replies.values())


@pytest.mark.parametrize("what", ["prompt", "prompt_digest", "tools"])
def test_a_tampered_prompt_is_refused(folder: Path, ask: Ask, what: str) -> None:
    """A prompt or digest that was edited after the fact is found out, and the file is named."""
    path = write_reply(folder, ask(), "without_skill", reply())
    stored = json.loads(path.read_text())
    if what == "prompt":
        stored["prompt"][-1]["content"] += " "
    elif what == "tools":
        stored["tools"] = [READ.model_dump(mode="json")]
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
        ("replies/l1__add/without_skill/0.json", '{"prompt": []}', "prompt_digest: is missing"),
        ("replies/l1__add/without_skill/zero.json", "{}", r"expected <repeat>\["),
        ("replies/l1__add/without_skill/0-step0.json", "{}", r"expected <repeat>\["),
        ("replies/l1__add/without_skill/0-step1-turn1.json", "{}", r"expected <repeat>\["),
        ("recording.json", '{"schema_version": 9}', "schema_version 9; this liftbench reads 1"),
        ("recording.json", '{"model_label": "a/b"}', "date: is missing"),
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


def test_a_recording_model_is_the_model_to_its_users(folder: Path) -> None:
    """What the inner model knows of itself is known of the recorded one."""

    class Choosy(Fake):
        ignored_parameters = frozenset({"seed"})
        price = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=2.0)

    model = RecordingModel(Choosy(), folder)
    assert (model.ignored_parameters, model.price) == ({"seed"}, Choosy.price)
    plain = RecordingModel(Fake(), folder)
    assert (plain.ignored_parameters, plain.price) == (frozenset(), None)


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
