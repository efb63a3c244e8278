"""Fetching a skill from a git repository, which here is a local one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.main import run
from harness.errors import DownloadError, UsageError
from harness.skills.fetch import Request, fetch, source_of
from harness.skills.spec import load_skill

HEAD = "---\nname: {}\ndescription: d\n---\nBody.\n"
SETTINGS = (
    "user.name=t",
    "user.email=t@example.org",
    "init.defaultBranch=main",
    "protocol.file.allow=always",
)


def git(folder: Path, *words: str) -> str:
    options = [word for setting in SETTINGS for word in ("-c", setting)]
    done = subprocess.run(["git", *options, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and no settings of the user's git."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A commit with the skill `one` (a script, a link to it), tagged v1, then one with a change and `two`."""
    root = tmp_path / "repo"
    (root / "skills/one/scripts").mkdir(parents=True)
    (root / "skills/one/SKILL.md").write_bytes(HEAD.format("one").replace("\n", "\r\n").encode())
    (root / "skills/one/scripts/run.sh").write_text("#!/bin/sh\n")
    (root / "skills/one/scripts/run.sh").chmod(0o755)
    (root / "skills/one/scripts/again.sh").symlink_to("run.sh")
    (root / ".gitattributes").write_text("*.md text eol=lf filter=evil\n")
    git(tmp_path, "init", "--quiet", str(root))
    commit(root)
    git(root, "tag", "-a", "v1", "-m", "first")
    (root / "skills/two").mkdir()
    (root / "skills/two/SKILL.md").write_text(HEAD.format("two"))
    (root / "skills/one/more.md").write_text("more\n")
    commit(root)
    return root


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "x")


def test_a_commit_a_tag_and_a_branch_are_resolved(repository: Path) -> None:
    """The files of that commit byte for byte, below their digest; a link is the file that it points at."""
    url = f"file://{repository}"
    first = fetch(Request.parse(f"{url}@v1"))
    assert first.skill.files == ("SKILL.md", "scripts/again.sh", "scripts/run.sh")
    assert (first.directory / "SKILL.md").read_bytes() == git_bytes(repository, "v1:skills/one/SKILL.md")
    assert os.access(first.directory / "scripts/again.sh", os.X_OK)
    assert not (first.directory / "scripts/again.sh").is_symlink()
    assert first.directory.parent.name == first.skill.digest
    found = source_of(first.directory)
    assert (found.revision, found.commit) == ("v1", git(repository, "rev-parse", "v1^{commit}"))
    same = fetch(Request.parse(f"{url}@{found.commit}"))
    assert (same.directory, source_of(same.directory).revision) == (first.directory, found.commit)
    later = fetch(Request.parse(f"{url}@main:skills/one/"))
    assert later.skill.digest != first.skill.digest and "more.md" in later.skill.files
    with pytest.raises(UsageError, match="2 fetched skills are named one: give one of /"):
        load_skill("one")


def git_bytes(root: Path, name: str) -> bytes:
    return subprocess.run(["git", "show", name], cwd=root, capture_output=True, check=True).stdout


def test_a_fetched_skill_is_found_by_its_name_until_it_is_changed(repository: Path) -> None:
    """By eval and install, as a shipped one; a change of its files is refused."""
    made = fetch(Request.parse(f"file://{repository}@main:skills/two"))
    assert load_skill("two") == made
    (made.directory / "SKILL.md").write_text(HEAD.format("two") + "other\n")
    with pytest.raises(UsageError, match="was changed since it was fetched"):
        load_skill("two")
    assert load_skill(str(made.directory)).skill.digest != made.skill.digest
    assert fetch(Request.parse(f"file://{repository}@main:skills/two")) == made == load_skill("two")


def test_the_command_says_what_was_fetched_and_how_to_use_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Name, commit, digest, folder and the next command; `list` shows it, `install` takes it by name."""
    monkeypatch.chdir(tmp_path)
    assert run(["skills", "fetch", f"file://{repository}@main:skills/two"]) == 0
    said = capsys.readouterr().out
    assert f"commit  {git(repository, 'rev-parse', 'main')} (main)" in said
    assert "liftbench eval two -m provider/model" in said and str(tmp_path / "cache") in said
    assert run(["skills", "list"]) == 0 and "fetched:" in capsys.readouterr().out
    assert run(["skills", "install", "two", "--copilot"]) == 0
    assert (tmp_path / ".github/skills/two/SKILL.md").read_text() == HEAD.format("two")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{url}", "write URL@COMMIT or URL@TAG"),
        ("ext::sh -c true@main", "write URL@COMMIT"),
        ("http://example.org/x@main", "write URL@COMMIT"),
        ("https://key@example.org/x@main", "user name or password"),
        ("{url}@--upload-pack=x", "write URL@COMMIT"),
        ("{url}@main", "has several skills, name one with :FOLDER: skills/one, skills/two"),
        ("{url}@main:skills", "skills has no SKILL.md; the skills are in: skills/one, skills/two"),
        ("{url}@main:../x", "../x is no folder of a repository"),
        ("{url}@v9", "has no tag or branch v9: give one, or a commit's 40"),
        ("{url}@abc1234", "has no tag or branch abc1234"),
    ],
)
def test_what_cannot_be_fetched_is_refused(repository: Path, given: str, said: str) -> None:
    """Before anything is written; the message says what to write instead."""
    with pytest.raises(UsageError) as refused:
        fetch(Request.parse(given.format(url=f"file://{repository}")))
    assert said in str(refused.value)
    assert not list(repository.parent.glob("cache/liftbench/skills/*"))


def out_of_the_folder(skill: Path) -> None:
    (skill / "all.md").symlink_to("../two/SKILL.md")


def to_the_machine(skill: Path) -> None:
    (skill / "all.md").symlink_to("/etc/passwd")


def pointer(skill: Path) -> None:
    (skill / "weights.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")


def submodule(skill: Path) -> None:
    git(skill, "submodule", "--quiet", "add", f"file://{skill.parents[1]}", "sub")


def no_frontmatter(skill: Path) -> None:
    (skill / "SKILL.md").write_text("---\nname: [\n---\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (out_of_the_folder, "all.md is a link to '../two/SKILL.md', which is no file of the skill"),
        (to_the_machine, "all.md is a link to '/etc/passwd'"),
        (pointer, "weights.bin is a Git LFS pointer"),
        (submodule, "sub is a submodule"),
        (no_frontmatter, "skills/one/SKILL.md of"),
    ],
)
def test_a_skill_that_cannot_be_copied_whole_is_refused(
    repository: Path, change: Callable[[Path], None], said: str
) -> None:
    """Links out of the folder, submodules, LFS pointers: by name."""
    change(repository / "skills/one")
    commit(repository)
    with pytest.raises(UsageError) as refused:
        fetch(Request.parse(f"file://{repository}@main:skills/one"))
    assert said in str(refused.value)


def test_git_that_is_missing_or_fails_is_reported(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What git said, on one line; without git, what to install."""
    with pytest.raises(DownloadError, match=r"git ls-remote failed: fatal: .* does not appear to be"):
        fetch(Request.parse(f"file://{tmp_path}/nothing@main"))
    with pytest.raises(DownloadError, match="git fetch failed"):
        fetch(Request.parse(f"file://{repository}@{'0' * 40}"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git is not installed"):
        fetch(Request.parse(f"file://{repository}@main"))
