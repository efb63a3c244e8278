"""trials.csv, report.json, report.md, junit.xml and how they reach the disk."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from harness.outcome import Cause
from harness.report.html import render_html
from harness.report.markdown import report_markdown
from harness.report.records import Summary
from harness.report.summary import summarise
from harness.report.terminal import summary_lines
from harness.report.write import (
    COLUMNS,
    junit_xml,
    report_json,
    schema,
    schema_text,
    trials_csv,
    write_reports,
)
from tests.report import factories as make
from tests.report import studies
from tests.report.test_html import hostile_summary
from tests.report.test_summary import infra_study, small_study, without_gpu

REPOSITORY = Path(__file__).parents[2]


def one(message: str) -> Summary:
    tasks = make.families(1)
    trial = make.trial("l1/f0t0", make.WITH, Cause.COMPILE_ERROR, message)
    return summarise(make.run(tasks), [trial], tasks)


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_csv_cells_are_never_formulas(start: str) -> None:
    """A message that a spreadsheet would evaluate gets a leading apostrophe."""
    (row,) = csv.DictReader(io.StringIO(trials_csv(one(f"{start}cmd|'/C calc'!A0\nmore").trials)))
    assert row["headline"] == f"'{start}cmd|'/C calc'!A0"


def test_csv_has_a_line_per_trial_and_empty_cells_for_unknown() -> None:
    """Unknown and not reached are empty, never 0."""
    run, trials, tasks = small_study()
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, Cause.NO_FILES, "no files", answer=make.reply(None, None))
    rows = list(csv.DictReader(io.StringIO(trials_csv(summarise(run, trials, tasks).trials))))
    assert len(rows) == 12
    assert tuple(rows[0]) == COLUMNS
    first = rows[0]
    assert [first[c] for c in ("verdict", "tokens", "cost_usd", "speedup", "build_wall_s")] == [
        "no_project",
        "",
        "",
        "",
        "",
    ]
    assert first["folder"] == "trials/l1/f0t0/anthropic-claude-haiku-4-5/without_skill/0"


def test_markdown_table_survives_hostile_text() -> None:
    """No markup and no extra column from a student's text."""
    tasks = make.families(1)
    trials = [make.trial("l1/f0t0", make.WITH, Cause.NO_CUDA_DEVICE, "a | b <img src=x> `c` [d](e)")]
    text = report_markdown(summarise(make.run(tasks), trials, tasks))
    assert r"a \| b \<img src=x\> \`c\` \[d\](e)" in text
    assert "| correct | not measured (no CUDA device) |" in text.replace("\\", "")


def test_markdown_has_the_decision_on_top_and_the_tables_below() -> None:
    """Headlines first (a matrix before many of them); turns, movements and reads where there are any."""
    combined = report_markdown(summarise(*studies.combinations()))
    assert "\n**claude-haiku-4-5 x cuda-kernel-builder: helps: +55 pts" in combined
    assert report_markdown(summarise(*studies.repairs())).splitlines()[2].startswith("**helps: ")
    assert "|  | cuda-kernel-builder | fast-memory | cuda-kernel-builder + fast-memory |" in combined
    repairs = report_markdown(summarise(*studies.repairs()))
    assert "| after turn | without | with | lift | CI | $ without | $ with | lift/$ |" in repairs
    assert "- wrong\\_result -\\> correct: 21% of trials" in repairs
    assert "- removed: wrong\\_values 21% -\\> 0% (p, Holm: 0.006)" in repairs
    read = report_markdown(summarise(*studies.disclosed()))
    assert "| cuda-kernel-builder/SKILL.md | 50% of 8 | 4.0k |" in read


def test_a_disclosed_skill_that_was_never_read_is_warned_of_everywhere() -> None:
    """Terminal, Markdown and HTML say that such a lift says nothing of the skill's content."""
    record, trials, tasks = studies.disclosed()
    told = "its lift says nothing of its content"
    ways = {
        "terminal": lambda s: " ".join(line for line, _ in summary_lines(s, 400)),
        "markdown": report_markdown,
        "html": render_html,
    }
    bare = [
        t.model_copy(update={"turns": tuple(u.model_copy(update={"steps": ()}) for u in t.turns)})
        for t in trials
    ]
    for way in ways.values():
        assert told in way(summarise(record, bare, tasks))
        assert told not in way(summarise(record, trials, tasks))
    rare = [one if i < 4 else other for i, (one, other) in enumerate(zip(trials, bare, strict=True))]
    [warning] = [w for w in summarise(record, rare, tasks).warnings if "was read in" in w]
    assert "cuda-kernel-builder was read in 1 of 8 trials" in warning


def test_junit_counts_and_kinds() -> None:
    """Failures, errors (infra) and skips (not measured) are told apart; hostile text stays well-formed."""
    root = ElementTree.fromstring(junit_xml(infra_study(2)))
    counts = {suite.get("name", "").split()[1]: dict(suite.attrib) for suite in root}
    assert counts["without_skill"]["failures"] == "20"
    assert counts[make.WITH.id]["errors"] == "2"
    assert ElementTree.fromstring(junit_xml(without_gpu("deployed"))).findall(".//skipped")
    message = ElementTree.fromstring(junit_xml(hostile_summary())).find(".//failure")
    assert message is not None
    assert "<script>" in str(message.text)


def test_json_reads_back() -> None:
    """report.json is the whole Summary."""
    summary = summarise(*make.study())
    assert Summary.model_validate_json(report_json(summary)) == summary


def _fits(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    try:
        _check(value, rule, root)
    except AssertionError:
        return False
    return True


def _check(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> None:
    """As much of JSON Schema as pydantic emits for these records."""
    if "$ref" in rule:
        rule = root["$defs"][rule["$ref"].rpartition("/")[2]]
    if "anyOf" in rule:
        assert any(_fits(value, option, root) for option in rule["anyOf"]), value
        return
    kinds: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if rule.get("type") == "object":
        assert isinstance(value, dict)
        known = rule.get("properties", {})
        assert set(rule.get("required", ())) <= set(value)
        for name, inner in value.items():
            more = rule.get("additionalProperties", True)
            assert name in known or more is not False, name
            _check(inner, known.get(name, more if isinstance(more, dict) else {}), root)
    elif rule.get("type") == "array":
        assert isinstance(value, list)
        for inner in value:
            _check(inner, rule.get("items", {}), root)
    elif "type" in rule:
        assert isinstance(value, kinds[rule["type"]]), (value, rule)
    assert value in rule.get("enum", [value])
    assert value == rule.get("const", value)


@pytest.mark.parametrize("kind", ["study", "no gpu", "empty", "repairs", "combinations", "disclosed"])
def test_json_validates_against_the_schema(kind: str) -> None:
    """Every field of every report is described."""
    run, _, tasks = small_study()
    summary = {
        "study": lambda: summarise(*make.study()),
        "no gpu": lambda: without_gpu("deployed"),
        "empty": lambda: summarise(run, [], tasks),
        "repairs": lambda: summarise(*studies.repairs()),
        "combinations": lambda: summarise(*studies.combinations()),
        "disclosed": lambda: summarise(*studies.disclosed()),
    }[kind]()
    value = json.loads(report_json(summary))
    if importlib.util.find_spec("jsonschema") is None:
        _check(value, schema(), schema())
    else:
        importlib.import_module("jsonschema").validate(value, schema())


def test_published_schema_is_current() -> None:
    """docs/report.schema.json; renew with python -m harness.report.write."""
    assert (REPOSITORY / "docs" / "report.schema.json").read_text(encoding="utf-8") == schema_text()


def test_reports_replace_their_predecessors(tmp_path: Path) -> None:
    """All five files are written, over old ones, and no draft stays behind."""
    (tmp_path / "report.html").write_text("old")
    paths = write_reports(tmp_path, hostile_summary())
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in paths)
    assert {p.name for p in paths} == {"report.html", "report.json", "report.md", "trials.csv", "junit.xml"}
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """Where a file cannot be replaced, the draft goes and the rest is as it was."""
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        write_reports(tmp_path, hostile_summary())
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_markdown_leads_with_the_matrix_where_there_are_many_comparisons() -> None:
    """Six comparisons: before the headlines; two: after them. A cell says once that there is nothing."""
    many, few = (report_markdown(summarise(*make())) for make in (studies.combinations, studies.two_skills))
    assert many.index("## Decisions on") < many.index("**claude-haiku-4-5 x") < many.index("10 tasks x 2 r")
    assert few.index("**claude-haiku-4-5 x") < few.index("## Decisions on")
    assert [text.count("## Decisions on") for text in (many, few)] == [1, 1]
    assert "| inconclusive x1.00 (no interval) | inconclusive n/a |" in few
