"""A conversation in the shape that every provider takes.

Two neighbours of one role are left only where a call, or the result of one, stands between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from harness.models.reply import clean_text
from harness.records import Message

INVALID: Final = "invalid_json"
"""Under this name go back arguments that were no JSON object, so that the model sees what it wrote."""


def joined(messages: Iterable[Message]) -> list[Message]:
    """The messages without empty answers, and neighbours of one role as one.

    APIs refuse an assistant's message without text and calls (a student that said nothing, and is asked
    again), and many chat templates of local servers refuse two messages of one role in a row.
    """
    found: list[Message] = []
    for message in messages:
        if message.role == "assistant" and not message.content.strip() and not message.tool_calls:
            continue
        last = found[-1] if found else None
        alike = last is not None and last.role == message.role and message.role != "tool"
        if last is not None and alike and not (last.tool_calls or last.thinking or message.thinking):
            parts = [text for text in (last.content, message.content) if text.strip()]
            found[-1] = message.model_copy(update={"content": "\n\n".join(parts)})
        else:
            found.append(message)
    return found


def arguments_object(arguments: str) -> dict[str, JsonValue]:
    """A call's arguments as an object, which is the only thing that APIs and chat templates take back."""
    try:
        found: JsonValue = json.loads(arguments, parse_constant=_refuse)
        # Half a surrogate pair may come out of an escape, and can be sent no further.
        found = json.loads(clean_text(json.dumps(found, ensure_ascii=False)))
    # RecursionError: a reply may hold any number of brackets.
    except (ValueError, RecursionError):
        return {INVALID: arguments}
    return found if isinstance(found, dict) else {INVALID: arguments}


def _refuse(constant: str) -> JsonValue:
    raise ValueError(f"{constant} is no JSON")
