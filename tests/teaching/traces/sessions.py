"""Small sessions of coding agents, in the formats in which their programs keep them.

Each is the same story: a kernel that does not compile, an edit, a build that passes and a figure.
"""

from __future__ import annotations

import json
from typing import Any

TASK = "Write a CUDA kernel for RMSNorm."
COMMAND = "cd /work && python build.py --arch sm_90"
ERROR = '/work/norm.cu(12): error: identifier "warpSize32" is undefined'
OUTPUT = f"[1/2] nvcc -c norm.cu\n{ERROR}\n\n1 error detected in the compilation.\nninja: build stopped."
PASSED = "[2/2] linking\nkernel time: 12.5 us, speedup 1.43x over torch"
OLD, NEW = "int w = warpSize32;", "int w = 32;"
FILE = "/work/norm.cu"
FULL = f"__global__ void k() {{\n  {OLD}\n}}\n"
FINAL = FULL.replace(OLD, NEW)


def lines(*records: Any) -> str:
    """JSONL."""
    return "".join(json.dumps(record) + "\n" for record in records)


def claude_code() -> str:
    """`~/.claude/projects/*/*.jsonl`."""

    def said(role: str, uuid: str, *content: Any) -> dict[str, Any]:
        message = {"role": role, "content": list(content) if len(content) != 1 else content[0]}
        return {"type": role, "uuid": uuid, "sessionId": "s", "message": message}

    def use(call: str, name: str, **given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": call, "name": name, "input": given}

    def result(call: str, text: Any, failed: bool = False) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}

    last = said(
        "assistant", "a9", {"type": "text", "text": "It builds now."}, {"type": "text", "text": "Done."}
    )
    return lines(
        {"type": "summary", "summary": "x"},
        said("user", "u1", TASK),
        said(
            "assistant",
            "a1",
            {"type": "thinking", "thinking": "error: none yet"},
            {"type": "text", "text": "Hm."},
        ),
        said("assistant", "a2", [use("t1", "Write", file_path=FILE, content=FULL)]),
        said("user", "u2", [result("t1", "File created")]),
        said("assistant", "a3", [use("t2", "Bash", command=COMMAND)]),
        said("user", "u3", [result("t2", [{"type": "text", "text": OUTPUT}], failed=True)]),
        said("assistant", "a4", [use("t3", "Edit", file_path=FILE, old_string=OLD, new_string=NEW)]),
        said("user", "u4", [result("t3", "ok")]),
        said("assistant", "a5", [use("t4", "Bash", command=COMMAND)]),
        said("user", "u5", [result("t4", PASSED), {"type": "image", "source": {"data": "AAAA"}}]),
        last,
        last,
        {"type": "never-heard-of", "x": 1},
    )


def codex() -> str:
    """`~/.codex/sessions/**/rollout-*.jsonl`."""

    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload}

    def event(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": "event_msg", "payload": payload}

    def shell(call: str, command: str) -> dict[str, Any]:
        arguments = json.dumps({"command": ["bash", "-lc", command]})
        return item(type="function_call", name="shell", arguments=arguments, call_id=call)

    def output(call: str, text: str, code: int) -> dict[str, Any]:
        wrapped = json.dumps({"output": text, "metadata": {"exit_code": code}})
        return item(type="function_call_output", call_id=call, output=wrapped)

    body = "".join(f"+{line}\n" for line in FULL.splitlines())
    add = f"*** Begin Patch\n*** Add File: {FILE}\n{body}*** End Patch"
    update = f"*** Begin Patch\n*** Update File: {FILE}\n@@\n-  {OLD}\n+  {NEW}\n*** End Patch"
    context = "<environment_context>x</environment_context>"
    return lines(
        {"type": "session_meta", "payload": {"id": "x"}},
        item(type="message", role="user", content=[{"type": "input_text", "text": context}]),
        item(type="message", role="user", content=[{"type": "input_text", "text": TASK}]),
        event(type="user_message", message=TASK),
        event(type="agent_reasoning", text="Plan"),
        item(type="reasoning", summary=[{"type": "summary_text", "text": "Plan"}], content=None),
        item(type="custom_tool_call", name="apply_patch", input=add, call_id="c0"),
        item(type="custom_tool_call_output", call_id="c0", output='{"output": "Success"}'),
        shell("c1", COMMAND),
        output("c1", OUTPUT, 1),
        event(type="exec_command_end", call_id="c1", command=["x"], aggregated_output=OUTPUT, exit_code=1),
        item(type="custom_tool_call", name="apply_patch", input=update, call_id="c2"),
        shell("c3", COMMAND),
        output("c3", PASSED, 0),
        event(type="token_count", info={}),
        event(type="agent_message", message="Done."),
        item(type="message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
    )


def codex_stream() -> str:
    """`codex exec --json`."""

    def done(**item: Any) -> dict[str, Any]:
        return {"type": "item.completed", "item": item}

    def ran(number: int, text: str, code: int) -> dict[str, Any]:
        return done(
            id=f"i{number}", type="command_execution", command=COMMAND, aggregated_output=text, exit_code=code
        )

    return lines(
        {"type": "thread.started", "thread_id": "x"},
        {"type": "item.started", "item": {"type": "command_execution", "command": COMMAND}},
        ran(1, OUTPUT, 1),
        ran(2, PASSED, 0),
        done(type="agent_message", text="Done."),
        {"type": "turn.completed", "usage": {}},
    )


def openai_chat() -> str:
    """A `messages` document of the chat completions API."""

    def call(name: str, number: int, **given: Any) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps(given)}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def tool(number: int, text: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": f"c{number}", "content": text}

    messages = [
        {"role": "system", "content": "You write kernels."},
        {"role": "user", "content": TASK},
        call("write_file", 0, path=FILE, content=FULL),
        tool(0, "ok"),
        call("bash", 1, command=COMMAND),
        tool(1, OUTPUT),
        call("str_replace", 2, path=FILE, old_str=OLD, new_str=NEW),
        tool(2, "ok"),
        call("bash", 3, command=COMMAND),
        tool(3, PASSED),
        {"role": "assistant", "content": "Done.", "reasoning_content": "fine"},
    ]
    return json.dumps({"model": "m", "messages": messages}, indent=1)


def markdown() -> str:
    """A transcript with a heading for each turn."""
    return f"""# Session

## User

{TASK}

## Assistant

`norm.cu`:

```cpp {FILE}
{FULL.rstrip()}
```

### Tool call: bash

```bash
{COMMAND}
```

### Tool result

```
{OUTPUT}
```

**Assistant:** I replace it.

```cpp {FILE}
{FINAL.rstrip()}
```

```console
$ {COMMAND}
{PASSED}
```

Done.
"""


FORMATS = {f.__name__: f for f in (claude_code, codex, codex_stream, openai_chat, markdown)}
