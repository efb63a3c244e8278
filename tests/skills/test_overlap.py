"""Token overlap of skills with tasks, and of projects with the expert projects."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.files import data_directory
from harness.grading.grade import Grader
from harness.outcome import Verdict
from harness.records import Origin, Project, ProjectFile, Provenance, Reply
from harness.records.project import COPIED, COPIED_SHARE, EVIDENT_TOKENS
from harness.skills.lineage import Lineage
from harness.skills.overlap import (
    Leak,
    excluded_tasks,
    overlaps,
    provenance,
)
from harness.skills.spec import LoadedSkill, load_skill, read_skill
from harness.student.answer import parse_reply
from harness.student.prompts import SYSTEM, task_text
from harness.suite.catalogue import LoadedTask, all_tasks, load_task, read_project
from tests.fakes.overlays import throw_away_task, zoo_project

ROOT = Path(__file__).resolve().parents[2]
EXPERTS = data_directory("kernels_ref")
SKILLS = sorted(path.parent.name for path in data_directory("skills").glob("*/SKILL.md"))
TASKS = {loaded.task.id: loaded for loaded in all_tasks()}
EVERY = list(TASKS.values())
SCAN = TASKS["l3/selective_scan"]
KERNEL = "selective_scan_cpu/selective_scan.cpp"
CUDA_KERNEL = "selective_scan_cuda/selective_scan.cu"
_COMMENT = re.compile(r"//.*")


def leaked(text: str, tasks: list[LoadedTask] = EVERY) -> set[str]:
    """Ids of the tasks that a SKILL.md of this text leaks."""
    return {leak.task for leak in overlaps({"SKILL.md": text}, tasks)}


def expert(task: str, file: str) -> str:
    """A file of a task's expert project."""
    return (EXPERTS / task / file).read_text()


def test_a_skill_with_an_expert_kernel_leaks_exactly_that_task() -> None:
    """The kernel is located in the skill and in the project, and no other task is named."""
    kernel = expert(SCAN.task.id, CUDA_KERNEL)
    text = f"# Scans\n\nLike this:\n\n```cuda\n{kernel}```\n"
    (leak,) = overlaps({"SKILL.md": "Nothing.\n", "references/scan.md": text}, EVERY)
    assert (leak.task, leak.file) == (SCAN.task.id, "references/scan.md")
    assert leak.source_file == f"kernels_ref/l3/selective_scan/{CUDA_KERNEL}"
    assert (leak.line, leak.source_line) == (6, 1)
    assert leak.longest > leak.count > 100
    assert Leak.model_validate_json(leak.model_dump_json()) == leak


def test_a_reference_is_a_leak_of_shipped_and_own_tasks(tmp_path: Path) -> None:
    """reference.py is part of the solution; a task from another folder needs no expert project."""
    text = (SCAN.directory / "reference.py").read_text()
    first = overlaps({"SKILL.md": text}, EVERY)[0]
    assert (first.source_file, first.task) == ("reference.py", SCAN.task.id)
    shutil.copytree(SCAN.directory, tmp_path / "mine" / "my_scan")
    assert leaked(text, [load_task(tmp_path / "mine" / "my_scan")]) == {"mine/my_scan"}


def test_what_the_prompt_and_every_project_say_is_no_leak() -> None:
    """Nor are plain advice, an empty skill, and one comment repeated a thousand times."""
    prompt = "\n".join([SYSTEM, *(task_text(SCAN.task, target, "full") for target in SCAN.task.dtypes)])
    assert leaked(prompt, [SCAN]) == set()
    files = read_project(EXPERTS / SCAN.task.id).files
    texts = {f.path: f.text for f in files if f.path.startswith(("build.toml", "torch-ext/"))}
    assert len(texts) >= 3 and overlaps(texts, EVERY) == ()
    assert overlaps({}, EVERY) == ()
    line = " ".join(expert(SCAN.task.id, CUDA_KERNEL).split("\n")[3].split()[:15])
    for text in ("", "for (int i = 0; i < n; ++i) out[i] = x[i];\n" * 50, f"{line}\n\n" * 1_000):
        assert leaked(text) == set()


def test_what_many_families_have_in_common_is_no_leak() -> None:
    """The result for a task is the same whether one or all tasks are asked about."""
    text = expert("l1/rms_norm", "rms_norm_cuda/rms_norm.cu")
    every = overlaps({"SKILL.md": text}, EVERY)
    assert every[0].task == "l1/rms_norm"
    (own,) = overlaps({"SKILL.md": text}, [TASKS["l1/rms_norm"]])
    assert own == every[0]
    assert not {"l1/gemm", "l1/histogram", "l3/selective_scan", "l1/conv2d"} & {one.task for one in every}


@pytest.mark.parametrize("name", SKILLS)
def test_shipped_skills_leak_no_task_and_exclude_none(name: str) -> None:
    """A skill that shows a task's solution would measure copying, not teaching."""
    folder = data_directory("skills") / name
    texts = {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert overlaps(texts, EVERY) == ()
    assert excluded_tasks([load_skill(name)], EVERY) == {}


def skill_with(folder: Path, body: str, marks: dict[str, str] | None = None) -> LoadedSkill:
    """A skill named `rows`."""
    metadata = "metadata:\n" + "".join(f'  {k}: "{v}"\n' for k, v in marks.items()) if marks else ""
    (folder / "SKILL.md").write_text(f"---\nname: rows\ndescription: d\n{metadata}---\n\n{body}\n")
    return LoadedSkill(read_skill(folder), folder)


def test_a_skill_excludes_what_it_holds_and_was_refined_on(tmp_path: Path) -> None:
    """Tasks whose solution it repeats, with file and line, and the families in its lineage's metadata."""
    source = max((EXPERTS / "l1/softmax").glob("*_cpu/*.cpp"), key=lambda path: path.stat().st_size)
    excluded = excluded_tasks([skill_with(tmp_path, f"```cpp\n{source.read_text()}```")], EVERY)
    assert re.search(r"rows repeats kernels_ref/l1/softmax/.*\(SKILL\.md:", excluded["l1/softmax"])
    seen = tuple(sorted({t.task.family for t in EVERY})[:2])
    excluded = excluded_tasks([skill_with(tmp_path, "Words.", Lineage("abc", seen, 1).metadata)], EVERY)
    assert {t.task.family for t in EVERY if t.task.id in excluded} == set(seen)
    assert all("refined or chosen" in why for why in excluded.values())


def project(files: dict[str, str] | None = None, **texts: str) -> Project:
    """A project of an empty build.toml and these files; `a="..."` is the file a.cpp."""
    every = {"build.toml": "", **{f"{name}.cpp": text for name, text in texts.items()}, **(files or {})}
    return Project(files=tuple(ProjectFile(path=path, text=every[path]) for path in sorted(every)))


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
    for folder in [ROOT / "demo/recordings/cpu", *sorted((ROOT / "studies").glob("*/recording*"))]:
        for path in sorted((folder / "replies").glob("*/*/*.json")):
            parsed = parse_reply(Reply.model_validate(json.loads(path.read_text())["reply"]))
            if isinstance(parsed, Project):
                yield TASKS[path.parts[-3].replace("__", "/")], parsed


@pytest.mark.slow
def test_no_recorded_reply_is_flagged() -> None:
    """Models that have seen none of it share a few rows of idiom: the figures that docs/judging.md has."""
    found = [provenance(parsed, loaded) for loaded, parsed in replies()]
    assert len(found) >= 60
    assert [one.flags for one in found if one.flags] == []
    assert max(one.origin.longest for one in found if one.origin) < EVIDENT_TOKENS
    assert max(one.share for one in found) < COPIED_SHARE


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: " ".join(
            line for line in _COMMENT.sub("", text).split("\n") if not line.startswith("#")
        ),
        lambda text: _COMMENT.sub(
            "// said in other words, which nobody has ever read before in any place", text
        ),
        lambda text: "#include <cstdint>\n" + text.replace("{", "{\n\n\t"),
    ],
    ids=["one line", "other comments", "other lines"],
)
def test_spacing_headers_and_comments_hide_nothing(changed: Callable[[str], str]) -> None:
    """What the compiler does not see is not compared."""
    found = provenance(project(scan=changed(scan())), SCAN)
    assert found.flags == (COPIED,)
    assert found.share > 0.7


def test_the_place_is_named_on_both_sides() -> None:
    """Task, file and line of the expert, file and line of the project, and how long it goes on."""
    text = "// ours\n" + own_code(2) + _COMMENT.sub("", scan())
    found = provenance(project({"k/scan.cpp": text, "readme.md": "Nothing."}), SCAN)
    origin = found.origin
    assert origin is not None
    assert (origin.task, origin.file, origin.project_file) == (SCAN.task.id, KERNEL, "k/scan.cpp")
    assert origin.project_line - origin.source_line == 3
    assert origin.longest > 1_000
    assert origin.rows == found.common < found.rows


@pytest.mark.parametrize(
    ("files", "loaded"),
    [
        ({"a.cpp": scan()}, throw_away_task("scale")),
        ({"torch-ext/kernel.h": scan()}, SCAN),
        ({"a.cpp": f'const char* open = "/*"; char q = \'"\';\n{scan()}\nconst char* end = "*/";\n'}, SCAN),
    ],
    ids=["another task", "the binding's folder", "comment marks in strings"],
)
def test_a_copy_is_found_anywhere(files: dict[str, str], loaded: LoadedTask) -> None:
    """The experts of all tasks are compared with every file but build.toml, which is no source."""
    found = provenance(project(files), loaded)
    assert found.flags == (COPIED,)
    assert found.origin is not None and found.origin.task == SCAN.task.id
    assert provenance(project({"build.toml": scan()}), SCAN) == Provenance(rows=0, common=0)


def test_bindings_and_prompts_are_no_evidence() -> None:
    """The prompt teaches how bindings are written, and a project may repeat its task's text."""
    files = read_project(EXPERTS / SCAN.task.id).files
    bindings = Project(files=tuple(f for f in files if f.path.startswith(("build.toml", "torch-ext/"))))
    assert len(bindings.files) > 2
    assert provenance(bindings, SCAN).flags == ()
    text = "\n".join(task_text(SCAN.task, target, "full") for target in SCAN.task.dtypes)
    text = text.replace("//", "").replace("/*", "").replace("*/", "")
    assert provenance(project(a=text), SCAN).common == 0


def test_a_helper_among_much_else_is_told_and_not_flagged() -> None:
    """Below the stated share the rows stand in the record alone."""
    found = provenance(project(a=scan() + own_code(200)), SCAN)
    assert found.evident and 0 < found.share < COPIED_SHARE
    assert found.flags == ()


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
        {"rows": 30, "common": 4},
        {"rows": 30, "common": 0, "origin": ORIGIN},
    ],
)
def test_provenance_that_does_not_add_up_is_refused(values: dict[str, object]) -> None:
    """Rows in common are the project's, and come from somewhere."""
    with pytest.raises(ValidationError):
        Provenance.model_validate(values)
    assert Provenance(rows=0, common=0).share == 0.0


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
