"""Test cases from files as upskill (0.1, 0.2, v2), agentskills.io and NVIDIA write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cases.importing import load_cases
from harness.cases.schema import Check, TestCase
from harness.errors import UsageError

COMMAND = {"type": "command", "cmd": "python check.py", "config": {"timeout_seconds": 5}}


def write(path: Path, document: Any) -> Path:
    """A JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def first(tmp_path: Path, **fields: Any) -> TestCase:
    """The case that one entry of upskill's becomes."""
    [case] = load_cases(write(tmp_path / "cases.json", [{"input": "Do it.", **fields}]))
    return case


def contains(*texts: str) -> tuple[Check, ...]:
    return tuple(Check(kind="contains", text=text) for text in texts)


def test_upskill_0_2_saves_cases_beside_a_skill(tmp_path: Path) -> None:
    """skill_meta.json with metadata, nulls, a context and a list of strings."""
    entry = {
        "input": "Write a kernel",
        "context": {"files": {"a/in.csv": "1,2\n"}},
        "expected": {"contains": ["sm_90", "torch"]},
        "output_file": None,
        "validator": None,
        "validator_config": None,
    }
    write(tmp_path / "skill_meta.json", {"metadata": {"version": "1.0"}, "tests": [entry]})
    [case] = load_cases(tmp_path)
    assert (case.id, case.prompt, case.files) == ("case-1", "Write a kernel", {"a/in.csv": "1,2\n"})
    assert case.checks == contains("sm_90", "torch")
    assert case.not_checkable == ()


def test_nvidias_list_is_kept_in_words(tmp_path: Path) -> None:
    """A bare list with questions: a judge model's criteria, so nothing is checked and nothing lost."""
    entry = {"id": "q1", "question": "Tile it.", "expected_skill": "tilegym", "expected_script": None}
    entry |= {"ground_truth": "It tiles.", "expected_behavior": ["reads SKILL.md", "runs it"], "why": "new"}
    near = {"question": "Cook rice.", "should_trigger": False}
    first_case, second = load_cases(write(tmp_path / "evals" / "evals.json", [entry, near]).parent.parent)
    assert (first_case.id, first_case.prompt, first_case.checks) == ("q1", "Tile it.", ())
    assert first_case.not_checkable == (
        "expected_skill: tilegym",
        "ground_truth: It tiles.",
        "expected_behavior: reads SKILL.md",
        "expected_behavior: runs it",
        "why: new (a field that is not known here)",
    )
    assert second.id == "eval-2" and "should not be used" in second.not_checkable[0]


def test_a_document_may_keep_its_cases_under_any_of_upskills_names(tmp_path: Path) -> None:
    """Under `tests`, `test_cases`, `cases`, or as a bare list."""
    entries = [{"input": "Say a.", "expected": {"contains": "a"}}, {"input": "Say b.", "id": "b"}]
    for document in (entries, *({name: entries} for name in ("tests", "test_cases", "cases"))):
        assert [case.id for case in load_cases(write(tmp_path / "x.json", document))] == ["case-1", "b"]


@pytest.mark.parametrize(
    ("fields", "checks"),
    [
        ({"expected": {"contains": "docs"}}, contains("docs")),  # 0.1 wrote one text
        ({"expected": {"contains": ["", "  "]}}, ()),  # a blank text would occur in every reply
        # `values` wins over `text`
        ({"verifiers": [{"type": "contains", "values": ["x", "y"], "text": "z"}]}, contains("x", "y")),
        (
            {
                "verifiers": [
                    {"type": "file_exists", "path": "./out/report.txt"},
                    {"type": "file_contains", "path": "out/report.txt", "text": "ok", "values": None},
                    COMMAND,
                ]
            },
            (
                Check(kind="file_exists", path="out/report.txt"),
                Check(kind="file_contains", path="out/report.txt", text="ok"),
                Check(kind="command", text="python check.py", wall_s=5.0),
            ),
        ),
        (
            {
                "expected": {
                    "output_contains": "a",
                    "regex": ["^b", "c$"],
                    "file_exists": ["x"],
                    "file_contains": {"x": ["1", "2"]},
                    "command": "true",
                }
            },
            (
                *contains("a"),
                Check(kind="regex", text="^b"),
                Check(kind="regex", text="c$"),
                Check(kind="file_exists", path="x"),
                Check(kind="file_contains", path="x", text="1"),
                Check(kind="file_contains", path="x", text="2"),
                Check(kind="command", text="true", wall_s=60.0),
            ),
        ),
    ],
)
def test_what_upskill_expects_becomes_checks(
    tmp_path: Path, fields: dict[str, Any], checks: tuple[Check, ...]
) -> None:
    """Every kind that needs nothing of upskill itself, as a text or a list; a command keeps its limit."""
    assert first(tmp_path, **fields).checks == checks


def test_what_only_upskill_can_check_is_kept_in_words(tmp_path: Path) -> None:
    """A validator, an unknown verifier and an unknown field are not checks, and are not lost."""
    verifiers = [{"type": "telepathy", "path": "x"}]
    case = first(
        tmp_path,
        validator="hf_eval_yaml",
        output_file="a.yaml",
        verifiers=verifiers,
        expected={"regexp": "typo"},
    )
    assert case.checks == ()
    for word in ("hf_eval_yaml of a.yaml", "telepathy", "typo"):
        assert any(word in note for note in case.not_checkable)


def evals(tmp_path: Path, **fields: Any) -> Path:
    """A skill's folder with one eval."""
    entry = {"id": 1, "prompt": "Plot evals/files/x.csv", "expected_output": "A chart.", **fields}
    write(tmp_path / "s" / "evals" / "evals.json", {"skill_name": "s", "evals": [entry]})
    return tmp_path / "s"


def test_assertions_of_agentskills_io_are_kept_and_those_with_a_type_checked(tmp_path: Path) -> None:
    """Sentences stay sentences, an object with a type is a check; the files that an eval names are read."""
    assertions = ["Both axes are labelled", {"text": "Nice"}, {"type": "contains", "value": "x"}]
    folder = evals(tmp_path, files=["evals/files/x.csv"], assertions=assertions)
    (folder / "evals/files").mkdir()
    (folder / "evals/files/x.csv").write_text("1,2\n")
    [case] = load_cases(folder)
    assert (case.id, case.checks, case.files) == ("eval-1", contains("x"), {"evals/files/x.csv": "1,2\n"})
    assert case.not_checkable == (
        "expected_output: A chart.",
        "Both axes are labelled",
        '{"text": "Nice"}',
    )


def test_both_files_of_a_skill_are_read(tmp_path: Path) -> None:
    """upskill's first, then evals.json; metadata alone is accepted."""
    folder = evals(tmp_path)
    write(folder / "skill_meta.json", {"metadata": {}})
    assert [case.id for case in load_cases(folder)] == ["eval-1"]
    write(folder / "skill_meta.json", {"tests": [{"input": "x"}]})
    assert [case.id for case in load_cases(folder)] == ["case-1", "eval-1"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"a": 1}, "none of evals, tests"),
        ([], "there are no test cases"),
        ({"tests": {}}, "tests must be a list"),
        ([{"input": "x"}, "y"], "[1]: must hold named fields"),
        ([{"expected": {}}], "[0]: input: is missing"),
        (
            {"tests": [{"input": "x", "expected": {"contains": [1]}}]},
            "tests[0]: expected.contains.0: must be",
        ),
        ([{"input": "x", "expected": {"regex": "("}}], "'(' is not a regular expression"),
        (
            [{"input": "x", "expected": {"file_contains": [{"path": "x"}]}}],
            "expected.file_contains: must hold",
        ),
        ([{"input": "x", "verifiers": [{"type": "file_exists"}]}], "verifiers.0: path is missing"),
        ([{"input": "x", "verifiers": [{"type": "file_exists", "path": "../x"}]}], "leaves the project"),
        (
            [{"input": "x", "verifiers": [{**COMMAND, "config": {"timeout_seconds": "9"}}]}],
            "must be a number",
        ),
        ([{"input": "x", "context": {"files": {"/etc/passwd": "x"}}}], "the file '/etc/passwd' is absolute"),
        ([{"input": "x", "context": {"files": {"a": "", "a/b": ""}}}], "a file and a folder at once"),
        ([{"input": "x", "id": "a"}, {"input": "y", "id": "a"}], "two test cases have the id 'a'"),
        (
            {"evals": [{"prompt": "x", "files": ["no.csv"]}]},
            "evals[0]: files names 'no.csv'; there is no such",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, document: Any, said: str) -> None:
    """The message names the file, the entry and the field."""
    file = write(tmp_path / "cases.json", document)
    with pytest.raises(UsageError) as refused:
        load_cases(file)
    assert str(file) in str(refused.value) and said in str(refused.value)


def test_a_file_outside_the_skill_is_never_read(tmp_path: Path) -> None:
    """Nor through a link."""
    (tmp_path / "secret").write_text("secret")
    folder = evals(tmp_path, files=["link"])
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="there is no such file"):
        load_cases(folder)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """An image in a prompt, a document that is not JSON, a folder without cases, a missing file."""
    folder = evals(tmp_path, files=["x.png"])
    (folder / "x.png").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "broken.json").write_text("[" * 100_000)
    for path, said in (
        (folder, "which is not text"),
        (tmp_path / "broken.json", "is not JSON"),
        (tmp_path, "has no test cases"),
        (tmp_path / "nowhere.json", "cannot be read"),
    ):
        with pytest.raises(UsageError, match=said):
            load_cases(path)
