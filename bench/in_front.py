"""CPU of the gateway's core for one request of a client, beside one `json.loads` of its body.

Each request says one message more than the one before, as a client's do, and every tenth changes
the tool list. Figures are medians of the last 20 requests of a conversation.


Usage: python bench/in_front.py
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from addendum.gateway.drive import Gateway

CHAT = "https://api.openai.com/v1/chat/completions"
MESSAGES = "https://api.anthropic.com/v1/messages"
HEADERS = {"authorization": "Bearer k"}
TEXT = "A line of a conversation about ships and tides, of a usual length. " * 6


def tool(number: int, wire: str) -> dict[str, Any]:
    """Return a tool as the wire declares it."""
    own: dict[str, Any] = {"name": f"tool_{number}", "description": TEXT}
    schema = {"type": "object", "properties": {"q": {"type": "string", "description": "A word."}}}
    if wire == CHAT:
        return {"type": "function", "function": {**own, "parameters": schema}}
    return {**own, "input_schema": schema}


def measured(wire: str, turns: int) -> tuple[float, float, int]:
    """Return milliseconds of the core and of `json.loads`, and the bytes of the last body."""
    gateway = Gateway()
    model = "gpt-4.1" if wire == CHAT else "claude-opus-5-5"
    messages: list[Any] = []
    core: list[float] = []
    loads: list[float] = []
    body = b""
    first = max(0, turns - 20)
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{turn} {TEXT}"})
        tools = [tool(number, wire) for number in range(12 + turn // 10 % 2 * 4)]
        value = {"model": model, "messages": messages, "tools": tools, "max_tokens": 100}
        if turn < first and turn % 25:
            messages.append({"role": "assistant", "content": f"{turn} {TEXT}"})
            continue
        body = json.dumps(value).encode()
        begun = time.process_time()
        exchange = gateway.begin(wire, HEADERS, body)
        between = time.process_time()
        json.loads(body)
        ended = time.process_time()
        assert exchange is not None and exchange.passed is None
        core.append(between - begun)
        loads.append(ended - between)
        answer = {"role": "assistant", "content": f"{turn} {TEXT}"}
        exchange.start(200, "application/json")
        said: dict[str, Any] = {"choices": [{"message": answer, "finish_reason": "stop"}]}
        if wire == MESSAGES:
            said = {"role": "assistant", "content": [{"type": "text", "text": answer["content"]}]}
        exchange.feed(json.dumps(said).encode())
        exchange.end()
        messages.append(answer)
    last = slice(-20, None)
    return (
        1000 * statistics.median(core[last]),
        1000 * statistics.median(loads[last]),
        len(body),
    )


def main() -> None:
    """Print the table."""
    print(f"{'wire':10}{'turns':>6}{'body kB':>9}{'core ms':>9}{'loads ms':>9}{'ratio':>7}")
    for name, wire in (("messages", MESSAGES), ("chat", CHAT)):
        for turns in (50, 200, 1000):
            core, loads, size = measured(wire, turns)
            print(f"{name:10}{turns:6}{size / 1000:9.0f}{core:9.2f}{loads:9.2f}{core / loads:7.2f}")


if __name__ == "__main__":
    main()
