"""Where a project's source stands already."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.files import data_directory
from harness.grading.grade import Grader
from harness.outcome import Verdict
from harness.records import Grade, Origin, Project, ProjectFile, Provenance, Reply, TrialRecord
from harness.records.provenance import COPIED, COPIED_SHARE, EVIDENT_ROWS, EVIDENT_TOKENS
from harness.skills.provenance import provenance
from harness.student.prompts import task_text
from harness.student.reply_parsing import parse_reply
from harness.suite.catalogue import LoadedTask, all_tasks, read_project
from tests.fakes.overlays import ZOO, overlaid, throw_away_task, zoo_project
from tests.fakes.trials import grade

ROOT = Path(__file__).resolve().parents[2]
EXPERTS = data_directory("kernels_ref")
TASKS = {loaded.task.id: loaded for loaded in all_tasks()}
RMS_NORM = TASKS["l1/rms_norm"]
SCAN = TASKS["l3/selective_scan"]
KERNEL = "selective_scan_cpu/selective_scan.cpp"
_COMMENT = re.compile(r"//.*")


def project(**texts: str) -> Project:
    """A project of these files; `__` stands for `/`, `_dot_` for a dot."""
    files = {name.replace("__", "/").replace("_dot_", "."): text for name, text in texts.items()}
    return Project(files=tuple(ProjectFile(path=path, text=files[path]) for path in sorted(files)))


def scan() -> str:
    """An expert's kernel that no other expert resembles."""
    return (EXPERTS / SCAN.task.id / KERNEL).read_text()


def own_code(lines: int) -> str:
    """Text that nobody else has: 13 rows of it for every line but the last."""
    return "".join(" ".join(f"w{line}_{place}" for place in range(13)) + "\n" for line in range(lines))


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_expert_is_found_for_either_target(task: str) -> None:
    """Each project of kernels_ref, cut down to one target, is flagged, and its own task is named."""
    whole = read_project(EXPERTS / task)
    targets = [target for target in ("cpu", "cuda") if any(f"_{target}/" in f.path for f in whole.files)]
    assert targets
    for target in targets:
        wanted = (f"{TASKS[task].task.name}_{target}/", "torch-ext/", "build.toml")
        files = tuple(file for file in whole.files if file.path.startswith(wanted))
        assert any(file.path.startswith(wanted[0]) for file in files)
        found = provenance(Project(files=files), TASKS[task])
        assert found.flags == (COPIED,), found
        assert found.origin is not None and found.origin.task == task


def replies() -> Iterator[tuple[LoadedTask, Project]]:
    """Every recorded reply that holds a project, with its task as it is now."""
    folders = [ROOT / "demo/recordings/cpu", ROOT / "demo/recordings/cuda"]
    for folder in [*folders, *sorted((ROOT / "studies").glob("*/recording"))]:
        for path in sorted((folder / "replies").glob("*/*/*.json")):
            parsed = parse_reply(Reply.model_validate(json.loads(path.read_text())["reply"]))
            if isinstance(parsed, Project):
                yield TASKS[path.parts[-3].replace("__", "/")], parsed


def test_no_recorded_reply_is_flagged() -> None:
    """Models that have seen none of it share a few rows of idiom: the figures that docs/judging.md has."""
    found = [provenance(parsed, loaded) for loaded, parsed in replies()]
    assert len(found) >= 60
    assert max(one.common for one in found) < EVIDENT_ROWS
    assert max(one.origin.longest for one in found if one.origin) < EVIDENT_TOKENS
    assert max(one.share for one in found) < COPIED_SHARE


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: " ".join(
            line for line in _COMMENT.sub("", text).split("\n") if not line.startswith("#")
        ),
        lambda text: _COMMENT.sub("", text),
        lambda text: _COMMENT.sub(
            "// said in other words, which nobody has ever read before in any place", text
        ),
        lambda text: "#include <cstdint>\n" + text.replace("{", "{\n\n\t"),
    ],
    ids=["one line", "no comments", "other comments", "other lines"],
)
def test_spacing_headers_and_comments_hide_nothing(changed: Callable[[str], str]) -> None:
    """What the compiler does not see is not compared."""
    found = provenance(project(build_dot_toml="", k__scan_dot_cpp=changed(scan())), SCAN)
    assert found.flags == (COPIED,)
    assert found.share > 0.7


def test_the_place_is_named_on_both_sides() -> None:
    """Task, file and line of the expert, file and line of the project, and how long it goes on."""
    text = "// ours\n" + own_code(2) + _COMMENT.sub("", scan())
    found = provenance(project(build_dot_toml="", k__scan_dot_cpp=text, readme_dot_md="Nothing."), SCAN)
    origin = found.origin
    assert origin is not None
    assert (origin.task, origin.file, origin.project_file) == (SCAN.task.id, KERNEL, "k/scan.cpp")
    assert origin.project_line - origin.source_line == 3
    assert origin.longest > 1_000
    assert origin.rows == found.common < found.rows


def test_another_tasks_expert_is_found_too() -> None:
    """The experts of all tasks are compared, also for a task that is not of the suite."""
    found = provenance(project(build_dot_toml="", a_dot_cpp=scan()), throw_away_task("scale"))
    assert found.flags == (COPIED,)
    assert found.origin is not None and found.origin.task == "l3/selective_scan"


def test_where_files_are_equal_the_tasks_own_is_named() -> None:
    """Experts share some files."""
    name = "panels.h"
    holders = sorted(TASKS[p.parts[-4] + "/" + p.parts[-3]].task.id for p in EXPERTS.glob(f"*/*/*/{name}"))
    assert len(holders) > 2
    text = (EXPERTS / "l1/gemm/gemm_cpu" / name).read_text()
    same = [id for id in holders if next((EXPERTS / id).glob(f"*/{name}")).read_text() == text]
    assert len(same) > 1
    for id in same:
        found = provenance(project(build_dot_toml="", a__b_dot_h=text), TASKS[id])
        assert found.origin is not None and found.origin.task == id


def test_a_kernel_in_the_bindings_folder_is_seen() -> None:
    """Nothing is hidden by where it stands, but in build.toml, which is no source."""
    hidden = project(build_dot_toml="", **{"torch-ext__kernel_dot_h": scan()})
    assert provenance(hidden, SCAN).flags == (COPIED,)
    assert provenance(project(build_dot_toml=scan()), SCAN) == Provenance(rows=0, common=0)


def test_strings_do_not_hide_code() -> None:
    """What looks like the beginning of a comment inside a string is none."""
    text = 'const char* open = "/*"; char quote = \'"\';\n' + scan() + '\nconst char* close = "*/";\n'
    assert provenance(project(build_dot_toml="", a_dot_cpp=text), SCAN).flags == (COPIED,)


def test_an_experts_binding_is_no_evidence() -> None:
    """The prompt teaches how bindings are made."""
    files = read_project(EXPERTS / SCAN.task.id).files
    bindings = Project(files=tuple(f for f in files if f.path.startswith(("build.toml", "torch-ext/"))))
    assert len(bindings.files) > 2
    assert provenance(bindings, SCAN).flags == ()


def test_what_the_prompt_says_is_nobodys() -> None:
    """A project that repeats its task's text has no rows of its own."""
    text = "\n".join(task_text(SCAN.task, target) for target in SCAN.task.dtypes)
    text = text.replace("//", "").replace("/*", "").replace("*/", "")
    found = provenance(project(build_dot_toml="", a_dot_cpp=text), SCAN)
    assert found.common == 0


def test_a_helper_among_much_else_is_told_and_not_flagged() -> None:
    """Below the stated share the rows stand in the record alone."""
    found = provenance(project(build_dot_toml="", a_dot_cpp=scan() + own_code(200)), SCAN)
    assert found.evident and 0 < found.share < COPIED_SHARE
    assert found.flags == ()


def test_a_row_that_is_repeated_counts_once() -> None:
    """A project is not made a copy by saying one thing often, nor its own by saying its own often."""
    once = provenance(project(build_dot_toml="", a_dot_cpp=scan() + own_code(3)), SCAN)
    often = provenance(project(build_dot_toml="", a_dot_cpp=scan() + own_code(3), b_dot_cpp=scan()), SCAN)
    assert (often.rows, often.common) == (once.rows, once.common)


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 200_000, "/*" * 200_000, "'" * 400_000, "\\" * 400_000, '"\\\n' * 100_000]
)
def test_text_that_never_closes_what_it_opens_is_read_once(text: str) -> None:
    """A search that starts anew at each mark would take hours."""
    found = provenance(project(build_dot_toml="", a_dot_cpp=text), SCAN)
    assert (found.common, found.flags) == (0, ())


def test_an_expert_said_a_hundred_times_is_one_expert() -> None:
    """Each stretch in common is followed once."""
    once = provenance(project(build_dot_toml="", a_dot_cpp=scan()), SCAN)
    often = provenance(project(build_dot_toml="", a_dot_cpp=scan() * 100), SCAN)
    assert once.origin is not None and often.origin is not None
    assert (often.origin.file, often.origin.longest) == (once.origin.file, once.origin.longest)
    assert 0 <= often.rows - once.rows < 26  # across the seam


@pytest.mark.parametrize("base", sorted(p.name for p in ZOO.glob("base*")))
def test_our_small_projects_have_an_idiom_at_most(base: str) -> None:
    """The zoo's bases, which honest and hostile rows stand on, are nobody's copies."""
    assert provenance(overlaid(ZOO / base, {}), throw_away_task("scale")).flags == ()


ORIGIN = Origin(
    task="l1/t", file="k.cu", rows=8, longest=40, source_line=1, project_file="a.cu", project_line=2
)


@pytest.mark.parametrize(
    ("rows", "common", "longest", "flagged"),
    [(80, 8, 40, True), (81, 8, 40, False), (60, 7, 99, False), (60, 7, 100, True), (71, 7, 100, False)],
)
def test_share_and_evidence_make_the_flag(rows: int, common: int, longest: int, flagged: bool) -> None:
    """A tenth of its rows, and more than an idiom: eight rows, or one stretch of a hundred tokens."""
    origin = ORIGIN.model_copy(update={"rows": common, "longest": longest})
    found = Provenance(rows=rows, common=common, origin=origin)
    assert found.flags == ((COPIED,) if flagged else ())
    assert Provenance.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "values",
    [
        {"rows": 3, "common": 4, "origin": ORIGIN.model_copy(update={"rows": 4})},
        {"rows": 30, "common": 4, "origin": ORIGIN},
        {"rows": 30, "common": 4},
        {"rows": 30, "common": 0, "origin": ORIGIN},
        {"rows": -1, "common": 0},
    ],
)
def test_provenance_that_does_not_add_up_is_refused(values: dict[str, object]) -> None:
    """Rows in common are the project's, and come from somewhere."""
    with pytest.raises(ValidationError):
        Provenance.model_validate(values)
    assert Provenance(rows=0, common=0).share == 0.0


def test_grades_of_before_it_still_load() -> None:
    """The field has a default, and survives the disk."""
    old = grade().model_dump(mode="json")
    del old["provenance"]
    assert Grade.model_validate(old).provenance is None
    found = Provenance(rows=80, common=8, origin=ORIGIN)
    new = grade().model_copy(update={"provenance": found, "flags": ("calls a library", COPIED)})
    assert Grade.model_validate_json(new.model_dump_json()) == new
    assert new.copied and new.flags_of_work == ("calls a library",)
    assert not grade().copied
    for run in sorted((ROOT / "studies").glob("*/run/trials.jsonl")):
        for line in run.read_text().splitlines():
            told = TrialRecord.model_validate_json(line).grade
            assert told is None or (told.provenance is None and not told.copied)


@pytest.mark.slow
def test_a_grade_holds_it_whatever_the_verdict(grader: Grader) -> None:
    """It is looked at before anything is built, so that what fails to build has it too."""
    failed = grader.grade(zoo_project("does_not_compile"), throw_away_task("scale"))
    assert failed.verdict is Verdict.BUILD_FAILED
    assert failed.provenance is not None and not failed.copied
    files = [*zoo_project("does_not_compile").files, ProjectFile(path="notes/scan.cpp", text=scan())]
    copied = Project(files=tuple(sorted(files, key=lambda file: file.path)))
    flagged = grader.grade(copied, throw_away_task("scale"))
    assert flagged.verdict is Verdict.BUILD_FAILED
    assert flagged.flags == (COPIED,)
