"""Installing skills where agents look for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.skills.install import Client, Place, install, places, uninstall

CLIENTS: tuple[Client, ...] = ("claude", "codex", "opencode", "agents")
FURTHER: tuple[Client, ...] = ("cursor", "gemini", "copilot")


def make_skill(root: Path, body: str = "Body.\n", name: str = "my-skill") -> Path:
    """A valid skill with a script and a file that is no text."""
    directory = root / name
    (directory / "scripts").mkdir(parents=True)
    (directory / "SKILL.md").write_bytes(f"---\r\nname: {name}\r\ndescription: d\r\n---\r\n{body}".encode())
    (directory / "scripts" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (directory / "scripts" / "run.sh").chmod(0o755)
    (directory / "blob.bin").write_bytes(bytes(range(256)))
    (directory / ".hidden").write_text("not part of it")
    return directory


def tree(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """All clients' folders of a project."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return places(CLIENTS, user=False)


def test_the_folders_are_those_of_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Project and user folders, as the clients' documents name them; those of opencode and Copilot differ."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    project = [p.folder.relative_to(tmp_path).as_posix() for p in places(CLIENTS, user=False)]
    user = [p.folder.relative_to(tmp_path).as_posix() for p in places(CLIENTS, user=True)]
    assert project == [".claude/skills", ".codex/skills", ".opencode/skills", ".agents/skills"]
    assert user == [".claude/skills", ".codex/skills", ".config/opencode/skills", ".agents/skills"]
    further = [
        [p.folder.relative_to(tmp_path).parts[0] for p in places(FURTHER, user=u)] for u in (False, True)
    ]
    assert further == [[".cursor", ".gemini", ".github"], [".cursor", ".gemini", ".copilot"]]


def test_a_skill_is_copied_byte_for_byte_to_every_place(tmp_path: Path, wanted: list[Place]) -> None:
    """With line ends, binary files and execute bits, without hidden files; again it changes nothing."""
    skill = make_skill(tmp_path)
    done = install(skill, wanted)
    assert [one.changed for one in done] == [True] * 4
    expected = {name: data for name, data in tree(skill).items() if name != ".hidden"}
    for place in wanted:
        assert tree(place.folder / "my-skill") == expected
        assert [p.name for p in place.folder.iterdir()] == ["my-skill"]
        assert (place.folder / "my-skill" / "scripts" / "run.sh").stat().st_mode & 0o111
    before = (wanted[0].folder / "my-skill").stat().st_ino
    assert [one.changed for one in install(skill, wanted)] == [False] * 4  # needs no --force
    assert (wanted[0].folder / "my-skill").stat().st_ino == before


def test_force_replaces_a_skill_and_installs_an_invalid_one(tmp_path: Path, wanted: list[Place]) -> None:
    """Without it a refusal in one place leaves all as they were; with it no file of the old one stays."""
    old = make_skill(tmp_path / "old", "Old.\n")
    (old / "extra.md").write_text("old\n")
    install(old, wanted[1:2])
    new = make_skill(tmp_path / "new")
    with pytest.raises(UsageError, match="--force replaces it"):
        install(new, wanted)
    assert not wanted[0].folder.exists()
    assert "extra.md" in tree(wanted[1].folder / "my-skill")
    install(new, wanted, force=True)
    assert "extra.md" not in tree(wanted[1].folder / "my-skill")
    (new / "SKILL.md").write_text("---\nname: other\ndescription: d\n---\nBody.\n")
    with pytest.raises(UsageError, match="'other' differs from the directory's name"):
        install(new, wanted)
    assert install(new, wanted[:1], force=True)[0].changed


def test_what_is_no_skill_is_never_replaced(tmp_path: Path, wanted: list[Place]) -> None:
    """Neither a folder without SKILL.md nor a link, whatever is asked; and no skill is copied onto itself."""
    skill = make_skill(tmp_path)
    mine = wanted[0].folder / "my-skill"
    mine.mkdir(parents=True)
    (mine / "precious.txt").write_text("x")
    with pytest.raises(UsageError, match="no skill's folder"):
        install(skill, wanted[:1], force=True)
    wanted[1].folder.mkdir(parents=True)
    (wanted[1].folder / "my-skill").symlink_to(mine)
    with pytest.raises(UsageError, match="no skill's folder"):
        install(skill, wanted[1:2], force=True)
    assert (mine / "precious.txt").read_text() == "x"
    with pytest.raises(UsageError, match="the skill itself"):
        install(skill, [Place("claude", "project", tmp_path)])
    with pytest.raises(UsageError, match=r"has no SKILL\.md"):
        install(tmp_path / "nowhere", wanted)


def test_a_place_that_is_no_folder_is_refused(tmp_path: Path, wanted: list[Place]) -> None:
    """A link to nothing where the client's folder would be: nothing is copied anywhere."""
    above = wanted[1].folder.parent
    above.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is no folder, so no skill can be put there"):
        install(make_skill(tmp_path), wanted[:2], force=True)
    assert not wanted[0].folder.exists()


def test_uninstall_removes_the_skill_alone(tmp_path: Path, wanted: list[Place]) -> None:
    """From every place that has it; other skills and the target of a link stay; paths are refused."""
    install(make_skill(tmp_path), wanted[:2])
    install(make_skill(tmp_path, name="other"), wanted[:1])
    assert uninstall("my-skill", wanted) == [place.folder / "my-skill" for place in wanted[:2]]
    assert [p.name for p in wanted[0].folder.iterdir()] == ["other"]
    with pytest.raises(UsageError, match="no skill 'my-skill' is installed"):
        uninstall("my-skill", wanted)
    (wanted[0].folder / "my-skill").symlink_to(tmp_path / "my-skill")
    uninstall("my-skill", wanted)
    assert (tmp_path / "my-skill" / "SKILL.md").is_file() and not (wanted[0].folder / "my-skill").exists()
    for name in ("..", "../skills", "a/b", "C:\\x", ""):
        with pytest.raises(UsageError, match="not a path"):
            uninstall(name, wanted)
