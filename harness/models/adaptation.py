"""Learns which sampling parameters a server takes, from its refusals.

A parameter that was refused once is not sent again by this model object; the limit on output tokens is
renamed, never dropped.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence

from harness.records import Sampling

_logger = logging.getLogger(__name__)

# Words with which servers say that they do not know a parameter, as opposed to not liking its value:
# "max_tokens is too large" must not be taken for "max_tokens is not supported".
_NOT_TAKEN = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|not accept|"
    r"deprecated|only the default",
    re.I,
)
_REFUSAL_STATUSES = (400, 422)


class Adaptation:
    """What one model has been found to take."""

    def __init__(self, model: str, limit_names: Sequence[str], optional: Sequence[str]) -> None:
        self._model = model
        self._limit_names = list(limit_names)
        """Names to try for the limit on output tokens; the first is in use."""
        self._optional = set(optional)
        """Of `temperature` and `seed`, those that are still sent."""
        self._ignored: set[str] = set()
        self._lock = threading.Lock()

    @property
    def ignored(self) -> frozenset[str]:
        """Sampling parameters that were asked for and cannot be had."""
        with self._lock:
            return frozenset(self._ignored)

    def parameters(self, sampling: Sampling) -> dict[str, float]:
        """What to send: the limit under its present name, and what was asked for and is still taken."""
        wanted = {"temperature": sampling.temperature, "seed": sampling.seed}
        with self._lock:
            sent: dict[str, float] = {self._limit_names[0]: sampling.max_output_tokens}
            for name, value in wanted.items():
                if value is None:
                    continue
                if name in self._optional:
                    sent[name] = value
                else:
                    self._ignore(name)
        return sent

    def learn(self, status: int, message: str, sent: Mapping[str, float], param: str | None = None) -> bool:
        """Take a refusal to heart; True when the same request is worth sending again.

        `param` is the server's own word for the culprit, where it has one. Ends: every True either
        removes a name for good, or follows another thread that just did.
        """
        if status not in _REFUSAL_STATUSES or not _NOT_TAKEN.search(message):
            return False
        culprit = param if param in sent else _first_named(message, sent)
        if culprit is None:
            return False
        with self._lock:
            if culprit in ("temperature", "seed"):
                self._optional.discard(culprit)
                self._ignore(culprit)
                return True
            if culprit != self._limit_names[0]:
                return True
            if len(self._limit_names) == 1:
                return False
            self._limit_names.pop(0)
            return True

    def _ignore(self, name: str) -> None:
        if name not in self._ignored:
            self._ignored.add(name)
            _logger.warning("%s does not take %s: its default is used", self._model, name)


def _first_named(message: str, names: Mapping[str, float]) -> str | None:
    places = {name: found.start() for name in names if (found := re.search(rf"\b{name}\b", message))}
    return min(places, key=places.__getitem__, default=None)
