"""Recordings: refused when altered, and replayed for the very prompt or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models import Model
from harness.models.providers import make_model
from harness.models.recording import RecordingManifest, RecordingMismatch, load, read_manifest
from harness.records import ModelSpec, Reply, Request
from tests.fakes import trials
from tests.fakes.recordings import create, write_reply
from tests.models.answers import READ, assistant, called, result

Ask = Callable[..., Request]
MANIFEST = RecordingManifest(
    model_label="acme/one",
    date="2026-11-21T10:00:00+00:00",
    tasks={"l1/add": "d1"},
    skills={"cuda": "d2"},
    briefing="contract",
)
SKILLED = "with_skill-0123abcd"


def reply(text: str) -> Reply:
    """A reply that was paid for."""
    return trials.reply(text, cost=0.25)


@pytest.fixture
def folder(tmp_path: Path, ask: Ask) -> Path:
    """Two arms, two repeats each, and a second turn."""
    made = tmp_path / "recording"
    create(made, MANIFEST)
    for repeat in (0, 1):
        write_reply(made, ask("plain", repeat=repeat), "without_skill", reply(f"plain {repeat}"))
        write_reply(made, ask("skilled", repeat=repeat), "with_skill", reply(f"skilled {repeat}"))
    write_reply(made, ask("plain, error", repeat=1, turn=1), "without_skill", reply("plain 1 ✓"))
    return made


def replayed(folder: Path) -> Model:
    return make_model(ModelSpec(name=f"replay/{folder}"))


def test_each_prompt_gets_its_own_reply(folder: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms differ by their prompts, repeats and turns by their numbers; the folder may be relative."""
    monkeypatch.chdir(folder.parent)
    model = replayed(Path("recording"))
    assert model.complete(ask("plain")) == reply("plain 0").model_copy(update={"recorded": True})
    assert model.complete(ask("plain", repeat=1)).text == "plain 1"
    assert model.complete(ask("skilled", repeat=1, arm=SKILLED)).text == "skilled 1"
    assert model.complete(ask("plain, error", repeat=1, turn=1)).text == "plain 1 ✓"
    assert load(folder).manifest == MANIFEST
    names = [path.name for path in sorted((folder / "replies/l1__add/without_skill").iterdir())]
    assert names == ["0.json", "1-turn1.json", "1.json"]


@pytest.mark.parametrize(
    "change", [{"prompt_digest": "0" * 64}, {"tools": [READ.model_dump(mode="json")]}, {"prompt": []}]
)
def test_a_tampered_prompt_is_refused(folder: Path, change: dict[str, object]) -> None:
    """A prompt, digest or tool that was edited after the fact is found out, and the file is named."""
    path = folder / "replies/l1__add/without_skill/0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UsageError, match=r"without_skill.0\.json: .*changed after it was recorded"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("replies/l1__add/without_skill/0.json", '{"prompt": []}', "prompt_digest: is missing"),
        ("replies/l1__add/without_skill/0-step1-turn1.json", "{}", r"expected <repeat>\["),
        ("recording.json", '{"schema_version": 9}', "schema_version: must be 2, not 9"),
    ],
)
def test_a_damaged_recording_is_refused_by_file(folder: Path, name: str, text: str, why: str) -> None:
    """A file that is no record is a usage error that names it."""
    (folder / name).write_text(text)
    with pytest.raises(UsageError, match=rf"{name}.*{why}"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "briefing"),
    [
        ({}, "contract"),
        ({"briefing": "full"}, "full"),
        ({"schema_version": 1, "briefing": None}, "full"),
        ({"schema_version": 1}, "schema_version: must be 2, not 1"),
        ({"briefing": None}, "briefing: is missing"),
        ({"briefing": "none"}, "briefing: must be"),
    ],
)
def test_a_manifest_says_its_briefing(folder: Path, change: dict[str, object], briefing: str) -> None:
    """Version 1 had none and is read as `full`; in version 2 it is never left out."""
    path = folder / "recording.json"
    fields = json.loads(path.read_text()) | change
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))
    if briefing in ("contract", "full"):
        assert read_manifest(folder).briefing == briefing
        return
    with pytest.raises(UsageError, match=briefing):
        read_manifest(folder)


def test_a_folder_without_a_manifest_is_no_recording(tmp_path: Path) -> None:
    """A wrong path is reported as such."""
    with pytest.raises(UsageError, match=r"is no recording: it has no recording\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, r"prompt has changed since.*then.*now.*frozen copies"),
        ({"arm": SKILLED}, "prompt has changed since"),
        ({"repeat": 1, "turn": 1}, "quotes the compiler"),
        ({"task": "l1/mul"}, "no reply for task l1/mul, .*it has l1__add with_skill 0"),
        ({"repeat": 1, "turn": 2}, "turn 2; it has l1__add"),
        ({"arm": "placebo-0123abcd"}, "arm placebo.*it has l1__add with_skill 0"),
    ],
)
def test_another_prompt_is_refused_with_the_reason(
    folder: Path, ask: Ask, changes: dict[str, str | int], why: str
) -> None:
    """A changed prompt is never answered with an old reply; what is missing is not blamed on the prompt."""
    with pytest.raises(RecordingMismatch, match=why):
        replayed(folder).complete(ask("unrecorded", **changes))


def test_steps_are_replayed_one_by_one(folder: Path, ask: Ask) -> None:
    """The reply that calls, then the one that follows; other tools or other results are another prompt."""
    [call] = called("a.md")
    first = ask("tools", repeat=5, tools=(READ,))
    calling = reply("").model_copy(update={"stop": "tool", "tool_calls": (call,)})
    write_reply(folder, first, "with_skill", calling)

    def after(text: str) -> Request:
        told = (*first.messages, assistant("", call), result(call, text))
        return ask(repeat=5, tools=(READ,), messages=told, step=1, arm=SKILLED)

    write_reply(folder, after("A"), "with_skill", reply("done"))
    model = replayed(folder)
    assert model.complete(first).tool_calls == (call,)
    assert model.complete(after("A")).text == "done"
    with pytest.raises(RecordingMismatch, match=r"step 1.*quotes the results of tools"):
        model.complete(after("B"))
    with pytest.raises(RecordingMismatch, match="the tools have changed since"):
        model.complete(ask("tools", repeat=5, arm=SKILLED))


def test_equal_prompts_of_two_arms_keep_their_replies(folder: Path, ask: Ask) -> None:
    """Where two arms have one prompt, each gets the reply that was recorded for it."""
    write_reply(folder, ask("skilled"), "placebo-11111111", reply("placebo"))
    model = replayed(folder)
    assert model.complete(ask("skilled", arm="placebo-11111111")).text == "placebo"
    assert model.complete(ask("skilled", arm=SKILLED)).text == "skilled 0"
