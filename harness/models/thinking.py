"""What a model thought, on its way back to it.

Nothing here reads it; a field that was refused once is not sent again by this model object.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from harness.models.reply import clean_text
from harness.records import Message, Thinking

FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""DeepSeek, SGLang, llama.cpp and older vLLM; newer vLLM and Ollama; OpenRouter (with signatures)."""

_logger = logging.getLogger(__name__)
_STATUSES: Final = (400, 422)
_NOT_TAKEN: Final = re.compile(
    r"extra_forbidden|not permitted|not allowed|unsupported|not support|unrecogni[sz]ed|unknown|unexpected",
    re.I,
)


def part_of(block: Mapping[str, Any], after_text: int = 0, after_calls: int = 0) -> Thinking:
    """A record of it, which any UTF-8 file can hold."""
    clean = json.loads(clean_text(json.dumps(block, ensure_ascii=False)))
    return Thinking(block=clean, after_text=after_text, after_calls=after_calls)


class TakenBack:
    """Which fields one model's server takes back."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._names = frozenset(FIELDS)
        self._lock = threading.Lock()

    @property
    def names(self) -> frozenset[str]:
        """All that were not refused."""
        with self._lock:
            return self._names

    def learn(self, status: int, message: str, sent: Set[str]) -> bool:
        """Take a refusal to heart; True when the same request is worth sending again.

        `sent`: the fields that it held. Servers that refuse one say where it stood, a path in `messages`, or
        its name, where that means nothing else. Ends: after every True fewer fields are sent.
        """
        if status not in _STATUSES or not _NOT_TAKEN.search(message):
            return False
        refused = {name for name in sent if _names(message, name)}
        if not refused:
            return False
        with self._lock:
            new = self._names & refused
            self._names -= refused
        for name in sorted(new):
            _logger.warning(
                "%s does not take `%s` back: it goes on without what it thought", self._model, name
            )
        return True


def fields_in(messages: Iterable[Message]) -> frozenset[str]:
    """Which of the fields stand in a conversation."""
    return frozenset(name for m in messages for part in m.thinking for name in part.block if name in FIELDS)


def _names(message: str, field: str) -> bool:
    """Whether a refusal speaks of the field of a message."""
    if field != "reasoning" and re.search(rf"\b{field}\b", message):
        return True
    return re.search(rf"\bmessages?\b.{{0,80}}\b{field}\b", message) is not None
