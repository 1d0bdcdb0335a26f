"""How the tests of the lab talk to it: plain requests, and texts of an exact size."""

from __future__ import annotations

from typing import Any

import httpx2

from addendum.lab.server import Lab

Json = dict[str, Any]
INLINE = "inline-tools-2026-09-15"
REFERENCE = "mid-conversation-tool-changes-2026-07-01"
CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
BINDING = "thinking-binding-controls-2026-08-01"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def text(kind: str, tokens: int, letter: str = "x", mark: Json | None = None) -> Json:
    """A text block that counts `tokens` tokens at `kind`: 4 bytes a token, the frame included."""
    frame = len(kind) + len('{"text":"","type":"text"}')
    block: Json = {"type": "text", "text": letter * (4 * tokens - frame)}
    return block if mark is None else {**block, "cache_control": mark}


def tool(name: str, tokens: int = 0, **more: Any) -> Json:
    """A Claude tool; with `tokens`, one that counts so many in `tools`."""
    frame = len("tools") + len('{"description":"","input_schema":{"type":"object"},"name":""}')
    size = 4 * tokens - frame - len(name) if tokens else 1
    description = "d" * size
    return {
        "name": name,
        "description": description,
        "input_schema": {"type": "object"},
        **more,
    }


def user(*blocks: Json | str) -> Json:
    return _message("user", blocks)


def assistant(*blocks: Json | str) -> Json:
    return _message("assistant", blocks)


def system(*blocks: Json | str, **more: Any) -> Json:
    return {**_message("system", blocks), **more}


def use(call_id: str, name: str = "a", **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = "ok", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def add(name: str, **more: Any) -> Json:
    tool_reference = {"type": "tool_reference", "name": name}
    return {"type": "tool_addition", "tool": tool_reference, **more}


def define(definition: Json, **more: Any) -> Json:
    value = {"type": "tool_definition", "definition": definition}
    return {"type": "tool_addition", "tool": value, **more}


def remove(name: str, **more: Any) -> Json:
    return {**add(name, **more), "type": "tool_removal"}


async def claude(
    lab: Lab,
    body: Json,
    *,
    betas: str = "",
    key: str = "k",
    headers: Json | None = None,
    **more: Any,
) -> httpx2.Response:
    """Post a body to Claude; model and `max_tokens` are filled in."""
    sent = {"model": "claude-opus-5", "max_tokens": 100, **body, **more}
    head = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    if betas:
        head["anthropic-beta"] = betas
    return await _post(lab.base_url("anthropic") + "/v1/messages", sent, headers or head)


async def deepseek(lab: Lab, body: Json, **more: Any) -> httpx2.Response:
    sent = {"model": "deepseek-flash", "max_tokens": 100, **body, **more}
    return await _post(lab.base_url("deepseek") + "/v1/messages", sent, {"x-api-key": "k"})


async def chat(
    lab: Lab, body: Json, *, provider: str = "openai-chat", key: str = "k", **more: Any
) -> httpx2.Response:
    sent = {"model": "gpt-4.1", **body, **more}
    head = {"authorization": f"Bearer {key}"} if key else {}
    return await _post(lab.base_url(provider) + "/chat/completions", sent, head)


def figures(response: httpx2.Response) -> tuple[int, int, int]:
    """Claude's and DeepSeek's usage: read, written, uncached."""
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    return (
        usage["cache_read_input_tokens"],
        usage["cache_creation_input_tokens"],
        usage["input_tokens"],
    )


async def _post(url: str, body: Json, headers: Json) -> httpx2.Response:
    async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
        return await client.post(url, json=body, headers=headers)


def _message(role: str, blocks: tuple[Json | str, ...]) -> Json:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    return {"role": role, "content": content}
