"""Taking files and projects out of a skill's Markdown."""

from __future__ import annotations

from harness.skills.blocks import code_blocks, shown_projects

DOCUMENT = """\
# Title

```toml build.toml
a = 1
```

Text, then a file:

```cpp path=torch-ext/torch_binding.cpp
int x;
```

```cuda
__global__ void fragment() {}
```

````md
```python not/a/file.py
```
````

```py torch-ext/pkg/__init__.py
y = 2
```
"""


def test_blocks_keep_language_path_and_line() -> None:
    """A block with a path is a complete file, one without is a fragment; a fence in a fence is text."""
    found = [(b.line, b.language, b.path) for b in code_blocks("SKILL.md", DOCUMENT)]
    assert found == [
        (3, "toml", "build.toml"),
        (9, "cpp", "torch-ext/torch_binding.cpp"),
        (13, "cuda", None),
        (17, "md", None),
        (22, "python", "torch-ext/pkg/__init__.py"),
    ]
    assert code_blocks("SKILL.md", DOCUMENT)[0].text == "a = 1\n"
    assert code_blocks("SKILL.md", DOCUMENT)[0].text_line == 4


def test_info_strings_that_name_no_safe_file_are_fragments() -> None:
    """Words, absolute paths, paths with `..` and brace attributes are no file names."""
    infos = ["cpp title", "cpp /etc/x.cpp", "cpp ../x.cpp", "python {.numberLines}", "", "text a/b"]
    markdown = "".join(f"```{info}\nx\n```\n" for info in infos)
    assert [b.path for b in code_blocks("a.md", markdown)] == [None] * len(infos)


def test_complete_files_of_a_document_form_one_project() -> None:
    """Fragments stay out, and files are sorted as in a reply."""
    (shown,) = shown_projects(code_blocks("SKILL.md", DOCUMENT))
    assert [f.path for f in shown.project.files] == [
        "build.toml",
        "torch-ext/pkg/__init__.py",
        "torch-ext/torch_binding.cpp",
    ]
    assert shown.build_toml.line == 3


def test_a_second_build_toml_begins_a_second_project() -> None:
    """A document may show several projects; a file shown twice counts as it was shown last."""
    one = "```toml build.toml\na = 1\n```\n```cpp x.cpp\n1\n```\n```cpp x.cpp\n2\n```\n"
    first, second = shown_projects(code_blocks("a.md", one + "```toml build.toml\na = 2\n```\n"))
    assert [(f.path, f.text) for f in first.project.files] == [("build.toml", "a = 1\n"), ("x.cpp", "2\n")]
    assert [(f.path, f.text) for f in second.project.files] == [("build.toml", "a = 2\n")]


def test_files_without_a_build_toml_are_no_project() -> None:
    """A lone example file is not built."""
    assert shown_projects(code_blocks("a.md", "```cpp x.cpp\n1\n```\n")) == []


def test_markdown_without_code_has_no_blocks() -> None:
    """Nothing in, nothing out."""
    assert code_blocks("a.md", "") == []
    assert shown_projects([]) == []
