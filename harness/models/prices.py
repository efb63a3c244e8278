"""What tokens cost, as far as it is known.

A cost with an unknown part is None; nothing unknown is taken for 0. List prices are those of the installed
`genai-prices`. The user's own table is a TOML file named by the environment variable LIFTBENCH_PRICES, one
section per model; it overrides list prices:

    ["openai/gpt-5-mini"]
    input_usd_per_mtok = 0.25
    cached_input_usd_per_mtok = 0.025
    output_usd_per_mtok = 2.00
"""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from harness.errors import UsageError
from harness.records import Record, Usage
from harness.records.reasons import reason_of

PRICES_VARIABLE: Final = "LIFTBENCH_PRICES"
_LISTED: Final = ("anthropic", "openai")
"""Providers with list prices; other words name servers that set their own."""


class Price(Record):
    """Prices of one model, standard tier, in USD per million tokens."""

    input_usd_per_mtok: float
    cached_input_usd_per_mtok: float | None = None
    """Input read from the provider's cache; None where it costs what other input costs."""
    cache_write_usd_per_mtok: float | None = None
    """Input written to the cache, where that costs extra; None where it is unknown or does not exist."""
    output_usd_per_mtok: float
    up_to_input_tokens: int | None = None
    """Longer prompts cost more, how much is not known here; None where all cost the same."""


def find_price(name: str, *, listed: bool = True) -> Price | None:
    """The price of `provider/model` by the user's table, else (if `listed`) the list price; None if unknown.

    Dated snapshots cost what their alias costs. Raises UsageError for a table that cannot be read.
    """
    own = _user_prices().get(name)
    return _list_price(name) if own is None and listed else own


def _list_price(name: str) -> Price | None:
    provider, _, model = name.partition("/")
    if provider not in _LISTED:
        return None
    from genai_prices.data_snapshot import get_snapshot  # a quarter of a second, which few commands need

    try:
        _, found = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    prices = found.get_prices(datetime.now(UTC))
    fresh, output = _base(prices.input_mtok), _base(prices.output_mtok)
    if fresh is None or output is None:
        return None
    tiers = getattr(prices.input_mtok, "tiers", None)
    return Price(
        input_usd_per_mtok=fresh,
        cached_input_usd_per_mtok=_base(prices.cache_read_mtok),
        cache_write_usd_per_mtok=_base(prices.cache_write_mtok),
        output_usd_per_mtok=output,
        up_to_input_tokens=tiers[0].start if tiers else None,
    )


def _base(price: Any) -> float | None:
    """The price of short prompts; longer ones may have a tier of their own."""
    value = getattr(price, "base", price)
    return float(value) if isinstance(value, Decimal) else None


def _user_prices() -> dict[str, Price]:
    """The table in the file that LIFTBENCH_PRICES names; empty when it names none."""
    named = os.environ.get(PRICES_VARIABLE)
    if not named:
        return {}
    path = Path(named)
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{PRICES_VARIABLE}={path} cannot be read: {reason_of(error)}") from error
    prices = {}
    for name, fields in sections.items():
        try:
            prices[name] = Price.model_validate(fields)
        except ValidationError as error:
            raise UsageError(f"{path}, section [{name!r}]: {reason_of(error)}") from error
    return prices


def cost_usd(price: Price | None, usage: Usage, *, cache_write_tokens: int = 0) -> float | None:
    """What one reply cost; None when the price or a count that matters is unknown.

    If the provider did not report cached input, the cost is known only where cached input has no price of
    its own. Reasoning is part of the output; `cache_write_tokens` are a part of the input.
    """
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    if price.up_to_input_tokens is not None and usage.input_tokens > price.up_to_input_tokens:
        return None
    cached, cached_price = usage.cached_input_tokens, price.cached_input_usd_per_mtok
    if cached is None:
        if cached_price not in (None, price.input_usd_per_mtok):
            return None
        cached = 0
    if cache_write_tokens and price.cache_write_usd_per_mtok is None:
        return None
    fresh = usage.input_tokens - cached - cache_write_tokens
    if fresh < 0:
        return None  # counts that contradict each other
    return (
        fresh * price.input_usd_per_mtok
        + cached * (price.input_usd_per_mtok if cached_price is None else cached_price)
        + cache_write_tokens * (price.cache_write_usd_per_mtok or 0.0)
        + usage.output_tokens * price.output_usd_per_mtok
    ) / 1e6
