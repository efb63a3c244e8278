"""Small sessions of coding agents, in the formats in which their programs keep them.

Each is the same story: a kernel that does not compile, an edit, a build that passes and a figure.
"""

from __future__ import annotations

import json
from pathlib import Path
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


def gemini() -> str:
    """A session file of Gemini's CLI."""

    def called(name: str, failed: bool, text: str, **args: Any) -> dict[str, Any]:
        response = [{"functionResponse": {"name": name, "response": {"output": text}}}]
        status = "error" if failed else "success"
        call = {"id": f"{name}-{text[:9]}", "name": name, "args": args, "status": status, "result": response}
        return {"type": "gemini", "content": "", "toolCalls": [call]}

    messages = [
        {"type": "user", "content": [{"text": TASK}]},
        called("write_file", False, "ok", file_path=FILE, content=FULL),
        called("run_shell_command", True, OUTPUT, command=COMMAND),
        called("replace", False, "ok", file_path=FILE, old_string=OLD, new_string=NEW),
        called("run_shell_command", False, PASSED, command=COMMAND),
        {"type": "gemini", "content": "Done.", "thoughts": [{"subject": "End", "description": "All good."}]},
    ]
    return json.dumps({"sessionId": "x", "messages": messages})


def gemini_api() -> str:
    """`contents` of the Gemini API."""

    def call(**args: Any) -> dict[str, Any]:
        return {"role": "model", "parts": [{"functionCall": {"name": "shell", "args": args}}]}

    def back(text: str) -> dict[str, Any]:
        response = {"name": "shell", "response": {"output": text}}
        return {"role": "user", "parts": [{"functionResponse": response}]}

    contents = [
        {"role": "user", "parts": [{"text": TASK}]},
        call(command=COMMAND),
        back(OUTPUT),
        call(command=COMMAND),
        back(PASSED),
        {"role": "model", "parts": [{"text": "Done."}]},
    ]
    return json.dumps({"contents": contents})


def opencode() -> str:
    """`opencode export`."""

    def tool(name: str, key: str, text: str, **given: Any) -> dict[str, Any]:
        status = "error" if key == "error" else "completed"
        state = {"status": status, "input": given, key: text}
        return {"type": "tool", "callID": f"{name}{text[:8]}", "tool": name, "state": state}

    parts = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "Plan"},
        tool("write", "output", "ok", filePath=FILE, content=FULL),
        tool("bash", "output", OUTPUT, command=COMMAND),
        tool("edit", "output", "ok", filePath=FILE, oldString=OLD, newString=NEW),
        tool("bash", "output", PASSED, command=COMMAND),
        {"type": "text", "text": "Done."},
    ]
    messages = [
        {"info": {"role": "user"}, "parts": [{"type": "text", "text": TASK}]},
        {"info": {"role": "assistant"}, "parts": parts},
    ]
    return json.dumps({"info": {"id": "ses"}, "messages": messages})


def fast_agent() -> str:
    """A history file of fast-agent."""

    def text(words: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": words}]

    def call(number: int, **given: Any) -> dict[str, Any]:
        params = {"name": "execute", "arguments": given}
        calls = {f"c{number}": {"method": "tools/call", "params": params}}
        return {"role": "assistant", "content": [], "tool_calls": calls}

    def back(number: int, words: str, failed: bool) -> dict[str, Any]:
        results = {f"c{number}": {"content": text(words), "isError": failed}}
        return {"role": "user", "content": [], "tool_results": results}

    messages = [
        {"role": "user", "content": text(TASK)},
        call(1, command=COMMAND),
        back(1, OUTPUT, True),
        call(2, command=COMMAND),
        back(2, PASSED, False),
        {"role": "assistant", "content": text("Done."), "channels": {"usage": text("{}")}},
    ]
    return json.dumps({"messages": messages})


def inspect_ai() -> str:
    """A log of inspect_ai as JSON; `events` repeats the messages."""

    def call(number: int) -> dict[str, Any]:
        calls = [{"id": f"c{number}", "function": "bash", "arguments": {"cmd": COMMAND}, "type": "function"}]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def tool(number: int, text: str) -> dict[str, Any]:
        return {"role": "tool", "function": "bash", "tool_call_id": f"c{number}", "content": text}

    messages = [
        {"role": "user", "content": TASK},
        call(1),
        tool(1, OUTPUT),
        call(2),
        tool(2, PASSED),
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "r"}, {"type": "text", "text": "Done."}],
        },
    ]
    sample = {"id": 1, "epoch": 1, "input": TASK, "messages": messages, "events": [{"input": messages}]}
    return json.dumps({"version": 2, "eval": {"task": "t"}, "samples": [sample]})


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


def terminal() -> str:
    """What Claude Code's screen shows."""
    shown = OUTPUT.replace("\n", "\n     ")
    passed = PASSED.replace("\n", "\n     ")
    return f"""❯ {TASK}

⏺ Let me build it.

⏺ Bash({COMMAND})
  ⎿  {shown}

⏺ Bash({COMMAND})
  ⎿  {passed}

● Done.
"""


FORMATS = {
    f.__name__: f
    for f in (
        claude_code, codex, codex_stream, openai_chat, gemini, gemini_api, opencode, fast_agent, inspect_ai,
        markdown, terminal,
    )
}  # fmt: skip


def run_folder(root: Path) -> Path:
    """One of our own runs: a first turn that does not build, a second that is correct."""
    folder = root / "run"
    key = {"task": "l1/rms_norm", "model": "local/m", "arm": "without_skill", "repeat": 0}
    files = folder / "trials/l1/rms_norm/local-m/without_skill/0"
    files.mkdir(parents=True)
    prompt = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": TASK}]}
    (files / "prompt.json").write_text(json.dumps(prompt))
    bad = {
        "verdict": "build_failed",
        "finding": {"cause": "compile_error", "message": "norm.cu does not compile"},
        "build": {"ok": False, "diagnostics": [{"file": "norm.cu", "line": 12, "message": "no such name"}]},
        "timing": None,
    }
    good = {
        "verdict": "correct",
        "finding": {"cause": "ok", "message": ""},
        "build": {"ok": True},
        "timing": {"speedup": {"value": 1.43}},
    }
    turns = [
        {"index": 0, "reply": {"text": f"```cpp norm.cu\n{FULL}```\n"}, "grade": bad},
        {"index": 1, "reply": {"text": f"Better:\n\n```cpp norm.cu\n{FINAL}```\n"}, "grade": good},
    ]
    (folder / "trials.jsonl").write_text(lines({"key": key, "turns": turns}) + '{"key": {"ta')
    return folder
