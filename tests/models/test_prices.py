"""What tokens cost, and when that is unknown."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models.prices import PRICES, PRICES_AS_OF, PRICES_SOURCES, Price, cost_usd, load_prices, price_of
from harness.records import Usage

ALL = Usage(input_tokens=1_000_000, cached_input_tokens=0, output_tokens=1_000_000)


def test_the_table_is_dated_and_sane() -> None:
    """Each price has a provider, a positive amount, and cached input is never dearer than fresh."""
    assert datetime.date.fromisoformat(PRICES_AS_OF) and PRICES_SOURCES
    for name, price in PRICES.items():
        assert name.partition("/")[0] in ("anthropic", "openai")
        assert 0 < price.input_usd_per_mtok < price.output_usd_per_mtok
        assert price.cached_input_usd_per_mtok is not None
        assert 0 < price.cached_input_usd_per_mtok < price.input_usd_per_mtok


def test_tokens_are_priced_by_kind() -> None:
    """Fresh, cached and written input and output each have their price; reasoning is within the output."""
    price = Price(
        input_usd_per_mtok=2.0,
        cached_input_usd_per_mtok=0.5,
        cache_write_usd_per_mtok=3.0,
        output_usd_per_mtok=10.0,
    )
    usage = Usage(input_tokens=1000, cached_input_tokens=400, output_tokens=100, reasoning_tokens=90)
    cost = cost_usd("x/y", usage, {"x/y": price}, cache_write_tokens=100)
    assert cost == pytest.approx((500 * 2.0 + 400 * 0.5 + 100 * 3.0 + 100 * 10.0) / 1e6)


def test_a_dated_snapshot_costs_what_its_alias_costs() -> None:
    """The date at the end of a model's name does not hide its price."""
    for name in ("openai/gpt-5-mini-2025-08-07", "anthropic/claude-haiku-4-5-20251001"):
        assert price_of(name, PRICES) is not None
    assert price_of("openai/gpt-5-mini-turbo", PRICES) is None


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("local/gpt-5-mini", ALL),
        ("openai/unheard-of", ALL),
        ("openai/gpt-5-mini", Usage()),
        ("openai/gpt-5-mini", Usage(input_tokens=10, cached_input_tokens=0)),
        ("openai/gpt-5-mini", Usage(output_tokens=10, cached_input_tokens=0)),
        ("openai/gpt-5-mini", Usage(input_tokens=10, output_tokens=10)),
        ("openai/gpt-5-mini", Usage(input_tokens=10, cached_input_tokens=11, output_tokens=10)),
        ("anthropic/claude-haiku-5-5", ALL),
    ],
)
def test_an_unknown_part_makes_the_cost_unknown(name: str, usage: Usage) -> None:
    """An unknown model, count or price band gives None, never a guess or 0."""
    assert cost_usd(name, usage) is None


def test_free_is_not_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's table adds models, wins over ours, and may say 0; cached input defaults to fresh."""
    path = tmp_path / "prices.toml"
    path.write_text(
        '["local/llama"]\ninput_usd_per_mtok = 0\noutput_usd_per_mtok = 0\n'
        '["openai/gpt-5-mini"]\ninput_usd_per_mtok = 7\noutput_usd_per_mtok = 9\n'
    )
    monkeypatch.setenv("LIFTBENCH_PRICES", str(path))
    assert cost_usd("local/llama", Usage(input_tokens=5, output_tokens=5)) == 0.0
    assert cost_usd("openai/gpt-5-mini", ALL) == 16.0
    assert load_prices()["openai/gpt-5"] == PRICES["openai/gpt-5"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("input = [", "no TOML"),
        ('["x/y"]\ninput_usd_per_mtok = 1\n', "'x/y'.*output_usd_per_mtok"),
        ('["x/y"]\ninput = 1\n', "'x/y'"),
        ("x = 3\n", "'x'"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_table_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    """A price file that cannot be used is named, with the section at fault."""
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("LIFTBENCH_PRICES", str(path))
    with pytest.raises(UsageError, match=why) as caught:
        load_prices()
    assert "prices.toml" in str(caught.value)
