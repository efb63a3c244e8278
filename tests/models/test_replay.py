"""Replaying recordings: the very prompt or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.models import Model, make_model
from harness.models.recording import RecordingManifest, RecordingMismatch
from harness.records import ModelSpec, Reply, Request
from tests.fakes.recordings import create, write_reply
from tests.models.answers import READ, assistant, called, result

Ask = Callable[..., Request]


def reply(text: str) -> Reply:
    """A reply as it was recorded."""
    return Reply(
        text=text, stop="end", model_label="one-2026", created="2026-11-21", cost_usd=0.5, latency_s=9.0
    )


@pytest.fixture
def folder(tmp_path: Path, ask: Ask) -> Path:
    """Two arms, two repeats each, and a second turn."""
    made = tmp_path / "demo" / "recording"
    create(made, RecordingManifest(model_label="acme/one", date="2026-11-21", tasks={}, skills={}))
    for repeat in (0, 1):
        write_reply(made, ask("plain", repeat=repeat), "without_skill", reply(f"plain {repeat}"))
        write_reply(made, ask("skilled", repeat=repeat), "with_skill", reply(f"skilled {repeat}"))
    write_reply(made, ask("plain, error", repeat=1, turn=1), "without_skill", reply("plain 1 again"))
    return made


@pytest.fixture
def model(folder: Path) -> Model:
    """The recording as a model, by absolute path."""
    return make_model(ModelSpec(name=f"replay/{folder}"))


def test_each_prompt_gets_its_own_reply(model: Model, ask: Ask) -> None:
    """Arms are told apart by their prompts, repeats and turns by their numbers."""
    skilled = {"arm": "with_skill-0123abcd"}
    expected = reply("plain 0").model_copy(update={"recorded": True})
    assert model.complete(ask("plain", repeat=0)) == expected
    assert model.complete(ask("plain", repeat=1)).text == "plain 1"
    assert model.complete(ask("skilled", repeat=1, **skilled)).text == "skilled 1"
    assert model.complete(ask("plain, error", repeat=1, turn=1)).text == "plain 1 again"


def test_the_folder_may_be_relative(folder: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """`replay/demo/recording` is looked for in the working directory."""
    monkeypatch.chdir(folder.parent.parent)
    model = make_model(ModelSpec(name="replay/demo/recording"))
    assert model.name == "replay/demo/recording"
    assert model.complete(ask("plain")).text == "plain 0"


def test_another_prompt_is_refused(model: Model, ask: Ask) -> None:
    """A changed prompt is never answered with an old reply; the message says what to do."""
    with pytest.raises(RecordingMismatch, match=r"prompt has changed since.*then.*now.*frozen copies"):
        model.complete(ask("plain!"))
    with pytest.raises(RecordingMismatch, match="prompt has changed since"):
        model.complete(ask("skilled!", arm="with_skill-0123abcd"))
    with pytest.raises(RecordingMismatch, match="quotes the compiler"):
        model.complete(ask("plain, other error", repeat=1, turn=1))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"task": "l1/mul"}, "no reply for task l1/mul, .*it has l1__add with_skill 0"),
        ({"repeat": 7}, "repeat 7.*it has l1__add with_skill 0"),
        ({"repeat": 1, "turn": 2}, "turn 2; it has l1__add"),
        ({"arm": "placebo-0123abcd"}, "arm placebo.*it has l1__add with_skill 0"),
    ],
)
def test_what_was_not_recorded_is_told_apart(
    model: Model, ask: Ask, changes: dict[str, str | int], why: str
) -> None:
    """A missing task, repeat, turn or arm is not blamed on the prompt."""
    with pytest.raises(RecordingMismatch, match=why):
        model.complete(ask("unrecorded", **changes))


def test_steps_are_replayed_one_by_one(folder: Path, ask: Ask) -> None:
    """The reply that calls, then the one that follows; other tools or other results are another prompt."""
    [call] = called("a.md")
    first = ask("tools", repeat=5, tools=(READ,))
    calling = reply("").model_copy(update={"stop": "tool", "tool_calls": (call,)})
    write_reply(folder, first, "with_skill", calling)

    def after(text: str, step: int = 1) -> Request:
        told = (*first.messages, assistant("", call), result(call, text))
        return ask(repeat=5, tools=(READ,), messages=told, step=step, arm="with_skill-0123abcd")

    write_reply(folder, after("A"), "with_skill", reply("done"))
    model = make_model(ModelSpec(name=f"replay/{folder}"))
    assert model.complete(first).tool_calls == (call,)
    assert model.complete(after("A")).text == "done"
    with pytest.raises(RecordingMismatch, match=r"step 1.*quotes the results of tools"):
        model.complete(after("B"))
    with pytest.raises(RecordingMismatch, match="the tools have changed since"):
        model.complete(ask("tools", repeat=5, arm="with_skill-0123abcd"))
    with pytest.raises(RecordingMismatch, match=r"step 2; it has l1__add"):
        model.complete(after("A", step=2))


def test_equal_prompts_of_two_arms_keep_their_replies(folder: Path, ask: Ask) -> None:
    """Where two arms have one prompt, each gets the reply that was recorded for it."""
    write_reply(folder, ask("skilled"), "placebo-11111111", reply("placebo"))
    model = make_model(ModelSpec(name=f"replay/{folder}"))
    assert model.complete(ask("skilled", arm="placebo-11111111")).text == "placebo"
    assert model.complete(ask("skilled", arm="with_skill-0123abcd")).text == "skilled 0"
    assert model.complete(ask("skilled", arm="old_skill-0123abcd")).text in ("placebo", "skilled 0")
