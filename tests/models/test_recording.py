"""Recordings on disk: written, read, and refused when altered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models.recording import RecordedReply, RecordingManifest, ReplyKey, load
from harness.records import Reply, Request, Usage
from harness.records.base import digest_of
from tests.fakes.recordings import create, write_reply
from tests.models.answers import READ

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
