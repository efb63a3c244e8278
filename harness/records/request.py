"""Records of skills, arms, and requests to models and their replies."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from harness.records.base import ArmKind, Delivery, Record, digest_of


class Skill(Record):
    name: str
    description: str
    body: str
    """SKILL.md without its frontmatter."""
    files: tuple[str, ...]
    """Relative paths of all files, sorted."""
    digest: str
    documents: dict[str, str] = Field(default_factory=dict, repr=False)
    """Text files by path, SKILL.md with its frontmatter: readable where delivery is `disclosed`."""


class Arm(Record):
    """An experimental condition: the skill texts, if any, that the student is given."""

    kind: ArmKind
    skills: tuple[str, ...] = ()
    delivery: Delivery = "body"

    @property
    def id(self) -> str:
        """The kind, followed by 8 hex digits where a skill or delivery matters; stable across runs."""
        if self.kind == "without_skill":
            return "without_skill" if self.delivery == "body" else "without_skill-disclosed"
        return f"{self.kind}-{digest_of([list(self.skills), self.delivery])[:8]}"

    @model_validator(mode="after")
    def _skills_fit_kind(self) -> Self:
        if (self.kind == "without_skill") != (not self.skills):
            raise ValueError(f"arm {self.kind}: skills do not fit the kind")
        return self


class Sampling(Record):
    """Sampling parameters; None is the provider's default."""

    max_output_tokens: int = 16_000
    temperature: float | None = None
    seed: int | None = None


class ModelSpec(Record):
    """A model as the user names it: `provider/model`, and where to reach it."""

    name: str
    base_url: str | None = None

    @property
    def provider(self) -> str:
        return self.name.partition("/")[0]

    @property
    def model(self) -> str:
        return self.name.partition("/")[2]

    @property
    def slug(self) -> str:
        return "".join(c if c.isalnum() or c in "-._" else "-" for c in self.name).strip("-.")

    @model_validator(mode="after")
    def _has_both_parts(self) -> Self:
        if not self.provider or not self.model:
            raise ValueError(f"model {self.name!r}: expected provider/model, such as openai/gpt-5-mini")
        return self


class Tool(Record):
    name: str
    description: str
    parameters: dict[str, JsonValue]


class ToolCall(Record):
    id: str
    name: str
    arguments: str


class Thinking(Record):
    """An opaque reasoning block of a reply, sent back unchanged."""

    block: dict[str, JsonValue]
    """The provider's JSON: a signed Anthropic block, or fields of a chat completion."""
    after_text: int = 0
    """Characters of the reply's text before it."""
    after_calls: int = 0


class _WithThinking(Record):
    """Omits `thinking` from JSON where there is none, so that digests of older records still match."""

    thinking: tuple[Thinking, ...] = ()
    """In order; only where the model had tools."""

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        if not self.thinking:
            fields.pop("thinking", None)
        return fields


class Message(_WithThinking):
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """The call that a tool's message answers."""

    @model_validator(mode="after")
    def _fits_role(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only an assistant calls tools")
        if self.thinking and self.role != "assistant":
            raise ValueError("only an assistant thinks")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise ValueError("a tool's message, and no other, says which call it answers")
        return self


class Request(Record):
    messages: tuple[Message, ...]
    sampling: Sampling
    task: str
    arm: str
    repeat: int
    turn: int = 0
    step: int = 0
    """Replies of this turn, before this one, that only called tools."""
    tools: tuple[Tool, ...] = ()

    @property
    def prompt_digest(self) -> str:
        """Over everything that the student reads: messages, and tools and thinking where there are any."""
        read: list[object] = [[m.role, m.content] for m in self.messages]
        calls = [[m.tool_call_id, [c.model_dump() for c in m.tool_calls]] for m in self.messages]
        if self.tools or any(call != [None, []] for call in calls):
            read = [read, calls, [tool.model_dump(mode="json") for tool in self.tools]]
        if any(m.thinking for m in self.messages):
            read.append([[part.model_dump(mode="json") for part in m.thinking] for m in self.messages])
        return digest_of(read)


class Usage(Record):
    """Tokens; None is unknown. Cached input is part of the input, reasoning of the output."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


class Reply(_WithThinking):
    text: str
    stop: Literal["end", "length", "refusal", "tool", "overflow", "other"]
    """`tool`: it waits for results of its calls; `overflow`: the prompt exceeds the context, no text."""
    model_label: str
    """The model as the provider (or the recording) names it."""
    created: str
    usage: Usage = Usage()
    cost_usd: float | None = None
    latency_s: float | None = None
    recorded: bool = False
    tool_calls: tuple[ToolCall, ...] = ()

    @field_validator("text")
    @classmethod
    def _is_unicode(cls, text: str) -> str:
        """Replaces lone surrogates, which JSON may carry and UTF-8 cannot, by U+FFFD."""
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
