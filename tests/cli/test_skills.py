"""`liftbench skills` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
GOOD = "---\nname: my-skill\ndescription: d\n---\nBody.\n"


Skills = Callable[..., tuple[int, str, str]]


@pytest.fixture
def skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Skills:
    """`liftbench skills ...` in a folder of its own, with a home below it: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "150")

    def invoke(*words: str | Path) -> tuple[int, str, str]:
        code = run(["skills", *map(str, words)])
        return code, *capsys.readouterr()

    return invoke


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    directory = tmp_path / "src" / "my-skill"
    (directory / "references").mkdir(parents=True)
    (directory / "SKILL.md").write_text(GOOD)
    (directory / "references" / "more.md").write_text("word " * 100)
    return directory


def test_installed_skills_are_listed_and_removed_again(skills: Skills, tmp_path: Path, skill: Path) -> None:
    """Several clients at once; `list` says for whom; `uninstall` takes them away; --global is the home."""
    told = [f"{client}: {tmp_path}/.{client}/skills/my-skill\n" for client in ("claude", "agents")]
    assert skills("install", skill, "--claude", "--agents") == (0, "".join(told), "")
    assert skills("install", skill, "--opencode", "--global")[0] == 0
    rows = json.loads(skills("list", "--json")[1])
    found = [(r["client"], r["scope"], r["name"]) for r in rows if r["client"]]
    assert found == [
        ("claude", "project", "my-skill"),
        ("agents", "project", "my-skill"),
        ("opencode", "user", "my-skill"),
    ]
    assert "cuda-kernel-builder" in [r["name"] for r in rows if r["client"] is None]
    assert "opencode, user" in skills("list")[1]
    assert skills("uninstall", "my-skill", "--claude", "--agents")[1].count("removed ") == 2
    assert not (tmp_path / ".claude" / "skills" / "my-skill").exists()
    assert (tmp_path / "home" / ".config" / "opencode" / "skills" / "my-skill" / "SKILL.md").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["install", "src/my-skill"], "Give one or more of --claude"),
        (["uninstall", "my-skill", "--codex"], "no skill 'my-skill' is installed"),
        (["install", "nowhere", "--codex"], "no skill 'nowhere'"),
        (["list", "nowhere"], "is no folder"),
    ],
)
def test_mistakes_are_usage_errors(
    skills: Skills, tmp_path: Path, skill: Path, words: list[str], said: str
) -> None:
    """Exit code 2, what happened, and nothing is written."""
    code, _, err = skills(*words)
    assert code == 2 and said in " ".join(err.split())
    assert [p.name for p in tmp_path.iterdir()] == ["src"]


def test_the_tree_shows_the_tokens_of_every_part(skills: Skills, tmp_path: Path, skill: Path) -> None:
    """Catalog line, body, each file, total, and what the specification has against the skill."""
    (skill / "SKILL.md").write_text(GOOD.replace("name: my-skill", "name: my-skill\nmetadata:\n  v: 1.0"))
    _, out, _ = skills("list", skill.parent, "--tree")
    parts = [line.split() for line in out.splitlines()]
    assert parts[0][:2] == ["my-skill", "145"]
    assert parts[1][:3] == ["catalog", "line", "4"]
    assert parts[2][:3] == ["SKILL.md", "body", "2"]
    assert parts[3][:2] == ["references/", "139"]
    assert parts[4] == ["more.md", "139"]
    assert "metadata.v" in out


def test_check_reports_code_facts_and_leaks(skills: Skills, tmp_path: Path, skill: Path) -> None:
    """Without building: findings like a compiler's, counts by language, exit 3 for an error."""
    kernel = (ROOT / "kernels_ref/l3/selective_scan/selective_scan_cuda/selective_scan.cu").read_text()
    body = f"A warp has 64 threads.\n```toml\n[general.cuda]\ncapabilities = []\n```\n```cuda\n{kernel}```\n"
    (skill / "SKILL.md").write_text(GOOD.replace("Body.\n", body))
    code, out, _ = skills("check", skill, "--no-build")
    lines = out.splitlines()
    assert code == 3
    assert lines[0].startswith("SKILL.md:5: warning: `warp has 64 threads`: a warp has 32 threads")
    assert lines[1].startswith("SKILL.md:8: error: kernel-builder refuses this: ")
    assert lines[2].startswith("SKILL.md:11: warning: the solution of l3/selective_scan has this too")
    assert lines[3:5] == ["cuda: 1 not built", "toml: 1 failed"]
    assert lines[5].startswith("my-skill: has errors; body")


@pytest.mark.slow
def test_check_compiles_what_a_skill_shows(skills: Skills, tmp_path: Path, skill: Path) -> None:
    """With a sandbox: progress on stderr, counts and the failure in the record."""
    body = "```cpp\nint f() { return 1; }\n```\n```cpp\nint f(int);\nint g() { return f(); }\n```\n"
    (skill / "SKILL.md").write_text(GOOD.replace("Body.\n", body))
    code, out, err = skills("check", skill, "--sandbox", "local", "--cache", tmp_path / "cache", "--json")
    report = json.loads(out)
    assert code == 3
    assert (report["code"]["cpp"]["built"], report["code"]["cpp"]["failed"]) == (1, 1)
    assert report["findings"][0]["line"] == 10
    assert "my-skill: 2 of 2 pieces of code built" in err
