"""What tokens cost, as far as it is known.

A cost with an unknown part is None; nothing unknown is taken for 0.

The user's table is a TOML file named by the environment variable LIFTBENCH_PRICES, one section per
model; it wins over the shipped table:

    ["openai/gpt-5-mini"]
    input_usd_per_mtok = 0.25
    cached_input_usd_per_mtok = 0.025
    output_usd_per_mtok = 2.00
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from harness.errors import UsageError
from harness.records import Record, Usage
from harness.records.reasons import reason_of

PRICES_AS_OF: Final = "2026-10-24"
PRICES_SOURCES: Final = (
    "platform.claude.com/docs/en/about-claude/pricing",
    "developers.openai.com/api/docs/pricing",
)
PRICES_VARIABLE: Final = "LIFTBENCH_PRICES"


class Price(Record):
    """List prices of one model, standard tier, in USD per million tokens."""

    input_usd_per_mtok: float
    cached_input_usd_per_mtok: float | None = None
    """Input read from the provider's cache; None where it costs what other input costs."""
    cache_write_usd_per_mtok: float | None = None
    """Input written to the cache, where that costs extra; None where it is unknown or does not exist."""
    output_usd_per_mtok: float
    up_to_input_tokens: int | None = None
    """Longer prompts cost more, how much is not in this table; None where all cost the same."""


def _price(
    fresh: float, cached: float, output: float, *, write: float | None = None, up_to: int | None = None
) -> Price:
    return Price(
        input_usd_per_mtok=fresh,
        cached_input_usd_per_mtok=cached,
        cache_write_usd_per_mtok=write,
        output_usd_per_mtok=output,
        up_to_input_tokens=up_to,
    )


PRICES: Final[dict[str, Price]] = {
    "anthropic/claude-haiku-4-5": _price(1.00, 0.10, 5.00),
    "anthropic/claude-haiku-5-5": _price(0.10, 0.01, 0.50, up_to=100_000),
    "anthropic/claude-sonnet-4-5": _price(3.00, 0.30, 15.00, up_to=200_000),
    "anthropic/claude-sonnet-4-6": _price(3.00, 0.30, 15.00),
    "anthropic/claude-sonnet-5": _price(2.00, 0.20, 10.00),
    "anthropic/claude-sonnet-5-5": _price(2.00, 0.10, 10.00),
    "anthropic/claude-opus-5": _price(5.00, 0.50, 25.00),
    "anthropic/claude-opus-5-5": _price(4.00, 0.20, 20.00),
    "openai/gpt-4.1": _price(2.00, 0.50, 8.00),
    "openai/gpt-5": _price(1.25, 0.125, 10.00),
    "openai/gpt-5-mini": _price(0.25, 0.025, 2.00),
    "openai/gpt-5-nano": _price(0.05, 0.005, 0.40),
    "openai/gpt-6-sol": _price(2.00, 0.20, 10.00, write=2.50, up_to=272_000),
    "openai/gpt-6-luna": _price(0.10, 0.01, 0.50, write=0.125, up_to=272_000),
    "openai/gpt-6.1-sol": _price(2.00, 0.10, 10.00, write=2.50, up_to=272_000),
}

# Dated snapshots cost what their alias costs: claude-haiku-4-5-20251001, gpt-5-mini-2025-08-07.
_SNAPSHOT = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")


def user_prices() -> dict[str, Price]:
    """The table in the file that LIFTBENCH_PRICES names; empty when it names none."""
    named = os.environ.get(PRICES_VARIABLE)
    if not named:
        return {}
    path = Path(named)
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{PRICES_VARIABLE}={path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{PRICES_VARIABLE}={path} is no TOML file: {error}") from error
    prices = {}
    for name, fields in sections.items():
        try:
            prices[name] = Price.model_validate(fields)
        except ValidationError as error:
            raise UsageError(f"{path}, section [{name!r}]: {reason_of(error)}") from error
    return prices


def load_prices() -> dict[str, Price]:
    """The shipped table with the user's own on top."""
    return PRICES | user_prices()


def price_of(name: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of `provider/model`, which may be a dated snapshot; None when it is unknown."""
    return prices.get(name) or prices.get(_SNAPSHOT.sub("", name))


def cost_usd(
    name: str, usage: Usage, prices: Mapping[str, Price] | None = None, *, cache_write_tokens: int = 0
) -> float | None:
    """What one reply cost; None when the price or a count that matters is unknown.

    Input that the provider did not report as cached or not (`cached_input_tokens` is None) has a
    known cost only where cached input costs the same. Reasoning is part of the output.
    `prices` defaults to `load_prices()`. `cache_write_tokens` are a part of the input, too.
    """
    price = price_of(name, load_prices() if prices is None else prices)
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    if price.up_to_input_tokens is not None and usage.input_tokens > price.up_to_input_tokens:
        return None
    cached_price = price.cached_input_usd_per_mtok
    if cached_price is None:
        cached_price = price.input_usd_per_mtok
    cached = usage.cached_input_tokens
    if cached is None:
        if cached_price != price.input_usd_per_mtok:
            return None
        cached = 0
    write_price = price.cache_write_usd_per_mtok
    if cache_write_tokens and write_price is None:
        return None
    fresh = usage.input_tokens - cached - cache_write_tokens
    if fresh < 0:
        # Counts that contradict each other are as good as unknown.
        return None
    return (
        fresh * price.input_usd_per_mtok
        + cached * cached_price
        + cache_write_tokens * (write_price or 0.0)
        + usage.output_tokens * price.output_usd_per_mtok
    ) / 1e6
