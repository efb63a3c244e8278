"""Which provider serves a name, and which keys it asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models.providers import PROVIDERS, make_model
from harness.records import ModelSpec


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai/gpt-5-mini", "OPENAI_API_KEY"), ("anthropic/claude-haiku-4-5", "ANTHROPIC_API_KEY")],
)
def test_a_missing_key_is_named(name: str, variable: str) -> None:
    """A model without its key is a usage error that names the variable to set."""
    with pytest.raises(UsageError, match=f"{name}.*{variable}"):
        make_model(ModelSpec(name=name))


def test_a_key_with_a_line_break_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that no header can carry is refused before a library can quote it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one\nsk-two")
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        make_model(ModelSpec(name="openai/gpt-5-mini"))
    assert "sk-" not in str(caught.value)


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    """A provider that is neither built in nor installed needs a base URL."""
    with pytest.raises(UsageError, match=r"'local'.*anthropic, openai, replay.*--base-url"):
        make_model(ModelSpec(name="local/llama"))
    assert set(PROVIDERS) == {"anthropic", "openai", "replay"}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:8080/v1", "not of the form"),
        ("http://host:port/v1", "cannot be read"),
        ("http://user:word@host/v1", "holds a password"),
        ("https://host/v1?key=word", "no \\? or # part"),
    ],
)
def test_an_unusable_base_url_is_refused(url: str, why: str) -> None:
    """A base URL that cannot work, or would put a secret on disk, is a usage error that shows no secret."""
    with pytest.raises(UsageError, match=why) as caught:
        make_model(ModelSpec(name="local/llama", base_url=url))
    assert "word@" not in str(caught.value) and "key=word" not in str(caught.value)


def test_an_installed_provider_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point serves its provider name, with or without a base URL; one that cannot load is named."""
    info = tmp_path / "acme_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[liftbench.models]\nacme = acme_models:Acme\n")
    source = "class Acme:\n    def __init__(self, spec, options): self.name = spec.name\n"
    (tmp_path / "acme_models.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_models", raising=False)
    for url in (None, "http://localhost:1/v1"):
        model = make_model(ModelSpec(name="acme/one", base_url=url))
        assert (type(model).__name__, model.name) == ("Acme", "acme/one")
    (info / "entry_points.txt").write_text("[liftbench.models]\nacme = acme_models:Missing\n")
    with pytest.raises(UsageError, match=r"'acme' \(acme_models:Missing\) cannot be loaded.*Missing"):
        make_model(ModelSpec(name="acme/one"))
