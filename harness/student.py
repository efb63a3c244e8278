"""The student: one request to a model, and what its reply holds.

Owns: going from a request to a project or the reason why there is none. Does not own: prompts,
providers, parsing, grading. Invariant: whatever the model says, this returns; only a provider that
fails raises (ProviderError, or UsageError for a request that can never be answered).
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.models.protocol import Model
from harness.project import parse_reply
from harness.records import Finding, Project, Reply, Request


@dataclass(frozen=True)
class Answer:
    """A reply, and the project in it or what was found instead."""

    reply: Reply
    project: Project | Finding


def read(reply: Reply) -> Answer:
    """What a reply holds."""
    return Answer(reply, parse_reply(reply))


def ask(model: Model, request: Request) -> Answer:
    """Ask once. Raises ProviderError and UsageError."""
    return read(model.complete(request))
