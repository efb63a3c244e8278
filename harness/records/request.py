"""Records of skills, arms and what is exchanged with a model."""

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

from harness.records.base import Record, digest_of


class Skill(Record):
    """An Agent Skill as the student may see it."""

    name: str
    description: str
    body: str
    """SKILL.md without its frontmatter."""
    files: tuple[str, ...]
    """Relative paths of all files, sorted."""
    digest: str
    """Over all files, paths and bytes."""
    documents: dict[str, str] = Field(default_factory=dict, repr=False)
    """Text files by path, SKILL.md whole: what a student may ask for where delivery is `disclosed`."""


class Arm(Record):
    """What is held different between trials: which skill text, if any, the student is given."""

    kind: Literal["without_skill", "with_skill", "placebo", "old_skill"]
    skills: tuple[str, ...] = ()
    """Digests, in the order in which they are presented."""
    delivery: Literal["body", "disclosed"] = "body"

    @property
    def id(self) -> str:
        """Short and stable: the kind, then 8 hex digits where a skill or delivery matters."""
        if self.kind == "without_skill":
            return "without_skill" if self.delivery == "body" else "without_skill-disclosed"
        return f"{self.kind}-{digest_of([list(self.skills), self.delivery])[:8]}"

    @model_validator(mode="after")
    def _skills_fit_kind(self) -> Self:
        if (self.kind == "without_skill") != (not self.skills):
            raise ValueError(f"arm {self.kind}: skills do not fit the kind")
        return self


class Sampling(Record):
    """What is asked of a model beside the messages; None leaves the provider's default."""

    max_output_tokens: int = 16_000
    temperature: float | None = None
    seed: int | None = None


class ModelSpec(Record):
    """A model as the user names it: `provider/model`, and where to reach it."""

    name: str
    base_url: str | None = None

    @property
    def provider(self) -> str:
        """The part before the first slash."""
        return self.name.partition("/")[0]

    @property
    def model(self) -> str:
        """The part after the first slash."""
        return self.name.partition("/")[2]

    @property
    def slug(self) -> str:
        """Safe as a folder name."""
        return "".join(c if c.isalnum() or c in "-._" else "-" for c in self.name).strip("-.")

    @model_validator(mode="after")
    def _has_both_parts(self) -> Self:
        if not self.provider or not self.model:
            raise ValueError(f"model {self.name!r}: expected provider/model, such as openai/gpt-5-mini")
        return self


class Tool(Record):
    """A function that a model may call instead of answering."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    """JSON schema of its arguments."""


class ToolCall(Record):
    """A model's call of a tool, as it wrote it."""

    id: str
    name: str
    arguments: str
    """JSON text, unchecked."""


class Thinking(Record):
    """A part of a reply that is no answer: opaque, read by nobody here, and sent back as it came."""

    block: dict[str, JsonValue]
    """The provider's JSON: a block of Anthropic's with its signature, or fields of a chat completion."""
    after_text: int = 0
    """Characters of the reply's text that came before it."""
    after_calls: int = 0
    """Calls of tools that came before it."""


class _Thoughtful(Record):
    """What may hold thinking; without any it is written as if there were no such thing."""

    thinking: tuple[Thinking, ...] = ()
    """In order; only where the model could call tools."""

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        if not self.thinking:
            fields.pop("thinking", None)
        return fields


class Message(_Thoughtful):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant."""
    tool_call_id: str | None = None
    """Which call a tool's message answers."""

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
    """One call to a model: the whole prompt, and which trial it is for."""

    messages: tuple[Message, ...]
    sampling: Sampling
    task: str
    arm: str
    """Arm.id; never part of the prompt."""
    repeat: int
    turn: int = 0
    step: int = 0
    """Within a turn: how many replies before this one only called tools."""
    tools: tuple[Tool, ...] = ()

    @property
    def prompt_digest(self) -> str:
        """Over the messages, and tools and thinking where there are any: what the student reads."""
        read: list[object] = [[m.role, m.content] for m in self.messages]
        calls = [[m.tool_call_id, [c.model_dump() for c in m.tool_calls]] for m in self.messages]
        if self.tools or any(call != [None, []] for call in calls):
            read = [read, calls, [tool.model_dump(mode="json") for tool in self.tools]]
        if any(m.thinking for m in self.messages):
            read.append([[part.model_dump(mode="json") for part in m.thinking] for m in self.messages])
        return digest_of(read)


class Usage(Record):
    """Tokens as the provider counts them; None is unknown. Cached and reasoning are parts, not additions."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


class Reply(_Thoughtful):
    """What a model answered."""

    text: str
    stop: Literal["end", "length", "refusal", "tool", "overflow", "other"]
    """`tool`: it waits for the results of its calls; `overflow`: the provider refused the prompt as too long
    for the model's context, and there is no text."""
    model_label: str
    """The model as the provider (or the recording) names it."""
    created: str
    """UTC, ISO 8601."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    latency_s: float | None = None
    recorded: bool = False
    """Replayed from a recording rather than asked now."""
    tool_calls: tuple[ToolCall, ...] = ()

    @field_validator("text")
    @classmethod
    def _is_unicode(cls, text: str) -> str:
        """Half of a surrogate pair, which JSON may carry, cannot be stored: it becomes U+FFFD."""
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
