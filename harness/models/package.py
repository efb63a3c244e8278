"""The SDKs that providers are reached with: what to install where one is missing.

After `require_sdk` the provider's module imports its SDK, and what that stands on, without a failure.
"""

from __future__ import annotations

import importlib
from typing import Final

from harness.errors import UsageError

# As in pyproject.toml: older SDKs stand on httpx, whose exceptions we would not catch.
REQUIREMENTS: Final = {"anthropic": "anthropic>=2.0", "openai": "openai>=3.0"}


def require_sdk(package: str, model: str) -> None:
    """Raises UsageError with the pip command where `package` cannot be imported."""
    try:
        for module in (package, "httpx2"):
            importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"model {model} needs the {package} package ({error}): pip install '{REQUIREMENTS[package]}'"
        ) from None
