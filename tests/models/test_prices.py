"""What tokens cost, and when that is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.models.prices import Price, cost_usd, find_price
from harness.records import Usage

ALL = Usage(input_tokens=1_000_000, cached_input_tokens=0, output_tokens=1_000_000)
PRICE = Price(
    input_usd_per_mtok=2.0,
    cached_input_usd_per_mtok=0.5,
    cache_write_usd_per_mtok=3.0,
    output_usd_per_mtok=10.0,
    up_to_input_tokens=200_000,
)


@pytest.mark.parametrize("name", ["openai/gpt-5-mini-2025-08-07", "anthropic/claude-haiku-4-5-20251001"])
def test_known_models_have_list_prices(name: str) -> None:
    """Dated snapshots too; cached input costs less than fresh input, and output most."""
    price = find_price(name)
    assert price is not None and price.cached_input_usd_per_mtok is not None
    assert 0 < price.cached_input_usd_per_mtok < price.input_usd_per_mtok < price.output_usd_per_mtok


@pytest.mark.parametrize("name", ["local/gpt-5-mini", "openai/gpt-5-mini-x"])
def test_other_names_have_no_price(name: str) -> None:
    """A server of one's own and an unknown model: None, never a guess or 0."""
    assert find_price(name) is None
    assert cost_usd(find_price(name), ALL) is None


def test_tokens_are_priced_by_kind() -> None:
    """Fresh, cached and written input and output each have their price; reasoning is within the output."""
    usage = Usage(input_tokens=1000, cached_input_tokens=400, output_tokens=100, reasoning_tokens=90)
    cost = cost_usd(PRICE, usage, cache_write_tokens=100)
    assert cost == pytest.approx((500 * 2.0 + 400 * 0.5 + 100 * 3.0 + 100 * 10.0) / 1e6)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(),
        Usage(output_tokens=10, cached_input_tokens=0),
        Usage(input_tokens=10, output_tokens=10),
        Usage(input_tokens=10, cached_input_tokens=11, output_tokens=10),
        ALL,
    ],
)
def test_an_unknown_part_makes_the_cost_unknown(usage: Usage) -> None:
    """An unknown count, counts that contradict each other, or a prompt beyond the price's limit."""
    assert cost_usd(PRICE, usage) is None
    unknown_write = PRICE.model_copy(update={"cache_write_usd_per_mtok": None})
    known = Usage(input_tokens=10, cached_input_tokens=0, output_tokens=10)
    assert cost_usd(unknown_write, known, cache_write_tokens=1) is None


def test_the_users_table_overrides_list_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It adds models and may say 0, which is not unknown; cached input defaults to the price of fresh."""
    path = tmp_path / "prices.toml"
    path.write_text(
        '["local/llama"]\ninput_usd_per_mtok = 0\noutput_usd_per_mtok = 0\n'
        '["openai/gpt-5-mini"]\ninput_usd_per_mtok = 7\noutput_usd_per_mtok = 9\n'
    )
    listed = find_price("openai/gpt-5")
    monkeypatch.setenv("LIFTBENCH_PRICES", str(path))
    assert cost_usd(find_price("local/llama", listed=False), Usage(input_tokens=5, output_tokens=5)) == 0.0
    assert cost_usd(find_price("openai/gpt-5-mini"), ALL) == 16.0
    assert find_price("openai/gpt-5") == listed is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("input = [", "cannot be read: Invalid value"),
        ('["x/y"]\ninput_usd_per_mtok = 1\n', "'x/y'.*output_usd_per_mtok"),
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
        find_price("x/y")
    assert "prices.toml" in str(caught.value)
