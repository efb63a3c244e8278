"""Trials of report.html: prompt, reply, source with its errors, log; hostile text; size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.outcome import Cause
from harness.records import (
    CheckResult,
    Diagnostic,
    Finding,
    Message,
    ProjectFile,
    Request,
    Sampling,
    WorkloadCheck,
)
from harness.report.html import render_html
from harness.report.source import listing
from harness.report.summary import summarise
from harness.report.transcripts import LOG_CHARS, Transcript, read_transcript
from harness.study.store import RunStore
from tests.report import factories as make
from tests.report import studies
from tests.report.transcripts import read_run, run_folder

HOSTILE = '</pre></details><script>alert(1)</script><img src=x onerror="alert(2)">\x1b[31m'


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.cu", "// <b>\nint x;", "<i class=c>// &lt;b&gt;</i>\n<b></b><i class=k>int</i> x;"),
        (
            "a.h",
            "/* a\nb */1'000u",
            "<i class=c>/* a</i>\n<b></b><i class=c>b */</i><i class=n>1&#39;000u</i>",
        ),
        ("a.cpp", '#define x "\\"<" f', "<i class=p>#define</i> x <i class=s>&#34;\\&#34;&lt;&#34;</i> f"),
        ("a.py", "def f(): # no", "<i class=k>def</i> f(): <i class=c># no</i>"),
        ("build.toml", "[general]\na = true", "<i class=p>[general]</i>\n<b></b>a = <i class=k>true</i>"),
        ("a.md", "# int <", "# int &lt;"),
    ],
)
def test_source_is_colored_and_escaped(path: str, text: str, expected: str) -> None:
    """Comments, strings, numbers, words and directives, by language; no element spans a line."""
    assert expected in listing(path, text, {})


def test_an_error_stands_below_its_line() -> None:
    """The line is marked, numbers go on after it; a line beyond the end is the last."""
    errors = {
        name: Diagnostic(kind="syntax", message=f"<{name}>", line=line, advice="advice")
        for name, line in (("e0", 2), ("e1", 99))
    }
    shown = listing("a.txt", "one\ntwo\nthree\n", errors)
    assert re.sub(r"<(?!/?mark)[^>]*>", "|", shown) == (
        "|||one\n||<mark>two</mark>|||line 2: syntax| &lt;e0&gt;|advice||"
        "|||<mark>three</mark>|||line 99: syntax| &lt;e1&gt;|advice||"
    )
    assert 'style="--from:2"' in shown and 'id="e1"' in shown


def test_a_trial_shows_what_its_folder_holds(tmp_path: Path) -> None:
    """Prompts stand once, also for both arms; files once, apart from the reply; the log's end."""
    store, trials = run_folder(tmp_path / "run", 2, 2)
    text = render_html(*read_run(store, trials))
    assert text.count("<h2>Prompts</h2>") == 1 and len(re.findall(r'id="p\d+"', text)) == 4
    assert "system prompt 1: l1/f0t0, without skill, in 8 trials" in text
    assert "skill 3: l1/f0t0, cuda-kernel-builder, in 4 trials" in text
    told = read_transcript(store, trials[0])
    binding = next(file.text for file in told.files if file.path.endswith("binding.cpp"))
    longest = max(binding.split("\n"), key=len).strip()
    shown = re.sub(r"<[^>]*>", "", text.replace("&#34;", '"').replace("&lt;", "<").replace("&gt;", ">"))
    assert longest in shown
    assert "[build.toml: below]" in shown and "end of the build's log</summary>" in text
    assert '<p class="error" id="t0e0"><b>line 3: syntax</b>' in text and 'href="#t0e0"' in text
    assert len(told.log) <= LOG_CHARS and told.log.startswith("...\n")
    assert [said.role for said in told.exchange] == ["system prompt", "prompt", "reply"]
    assert 'data-z="' not in text


def test_every_turn_of_a_trial_is_shown(tmp_path: Path) -> None:
    """Files that were asked for, feedback, and the replies of both turns, in order."""
    trial = studies.trial_of_turns(
        "l1/f0t0",
        make.WITH,
        [(Cause.COMPILE_ERROR, 1.0), (Cause.PASSED, 2.0)],
        steps=(studies.step(("a/SKILL.md",)),),
    )
    store = RunStore.create(tmp_path / "run", make.run(make.families(1), turns=2))
    said = [Message(role="system", content="system"), Message(role="user", content="task")]
    for turn, step, more in ((0, 0, []), (0, 1, ["assistant", "tool"]), (1, 0, ["assistant", "user"])):
        for role in more:
            call = "id" if role == "tool" else None
            said.append(Message(role=role, content=f"{role} {turn}", tool_call_id=call))  # type: ignore[arg-type]
        request = Request(
            messages=tuple(said), sampling=Sampling(), task="l1/f0t0", arm="x", repeat=0, turn=turn, step=step
        )
        store.write_prompt(trial.key, request)
    told = read_transcript(store, trial)
    roles = ["system prompt", "prompt", "reply", "file tool", "reply", "feedback", "reply"]
    assert [one.role for one in told.exchange] == roles
    assert [one.turn for one in told.exchange] == [0, 0, 0, 0, 0, 1, 1]
    text = render_html(*read_run(store, [trial]))
    assert "reply of turn 2 (0.0 kB)" in text and "<pre>user 1</pre>" in text


def test_a_run_without_folders_says_what_is_missing(tmp_path: Path) -> None:
    """The reply's own project is shown; prompt and log are not there."""
    _, trials = run_folder(tmp_path / "run", 1, 1)
    bare = RunStore.create(tmp_path / "bare", make.run(make.families(1), target="cpu"))
    text = render_html(*read_run(bare, trials))
    assert text.count("The prompt is not stored in this run") == 2
    assert "<code>build.toml</code>" in text and "log</summary>" not in text and "<h2>Prompts" not in text


def test_hostile_transcripts_are_inert(tmp_path: Path) -> None:
    """Prompts, replies, paths, files, logs and secrets of a student's cannot become markup."""
    tasks = make.families(1)
    answer = make.reply(text=HOSTILE + "HF_TOKEN=hf_abcdefghijklmnopqrstuvwx")
    trial = make.trial("l1/f0t0", make.WITH, answer=answer)
    store = RunStore.create(tmp_path / "run", make.run(tasks))
    messages = (Message(role="user", content=f"<skill {HOSTILE}</skill>\n\n{HOSTILE}"),)
    request = Request(messages=messages, sampling=Sampling(), task="l1/f0t0", arm="x", repeat=0)
    store.write_prompt(trial.key, request)
    (store.turn_folder(trial.key) / "build.log").write_bytes(HOSTILE.encode() + b"\xff")
    files = tuple(ProjectFile(path=f"a{end}", text=HOSTILE + "'\"/*") for end in (".cu", ".md", ".py"))
    told = read_transcript(store, trial)
    told = Transcript(told.exchange, files, told.log)
    text = render_html(summarise(store.run(), [trial], tasks), {trial.key.folder: told})
    assert text.count("<script>") == 1 and "<img" not in text and "\x1b" not in text
    assert "alert(<i class=n>1</i>)" in text  # in two of the files
    assert text.count("alert(1)") == 5 and "hf_abcdef" not in text


@pytest.mark.slow
def test_300_trials_take_less_than_3_mb(tmp_path: Path) -> None:
    """Real replies (16 kB on average), prompts of 50 tasks and logs: compressed, prompts once."""
    store, trials = run_folder(tmp_path / "run", 50, 3)
    text = render_html(*read_run(store, trials))
    assert len(trials) == 300 and text.count('data-z="') == 300 + 52
    assert len(text.encode()) < 3_000_000
    assert "They are compressed and need JavaScript" in text


def test_workloads_show_errors_and_times_where_they_were_measured() -> None:
    """A case that failed, with its message; a time with the speedup's interval; no empty columns."""
    tasks = make.families(2)
    a, b = tasks
    case = WorkloadCheck(
        workload="big", dtype="float32", calls=2, worst_error=7.5, allowed_error=1.0, worst_absolute=1.0,
        finding=Finding(cause=Cause.WRONG_VALUES, message="element 3 is <wrong>\nmore"),
    )  # fmt: skip
    check = CheckResult(workloads=(case, case.model_copy(update={"finding": None})), finding=case.finding)
    trials = [make.trial(a, make.WITH, Cause.WRONG_VALUES, "wrong", check=check), make.trial(b, make.WITH)]
    summary = summarise(make.run(tasks), trials, tasks)
    wrong, right = summary.trials
    [big] = wrong.workloads
    assert (big.cases, big.failed, big.worst_error, big.headline) == (2, 1, 7.5, "element 3 is <wrong>")
    text = render_html(summary)
    assert "1 of 2</td><td>7.5</td><td" in text and "element 3 is &lt;wrong&gt;" in text
    times = {"student_us": 4630.4, "speedup": 2.0, "speedup_low": 1.5, "speedup_high": 2.5}
    timed = wrong.model_copy(update={"workloads": (big.model_copy(update=times),)})
    text = render_html(summary.model_copy(update={"trials": (timed, right)}))
    assert "<td>4.63 ms</td>" in text and "2.00\u00d7 (1.50\u00d7, 2.50\u00d7)" in text
