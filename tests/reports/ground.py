"""What the reports share: where they are tried, and what stands in front of the messages."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from tests.cases.dispatching import INTEGER, STRING, WIRES, tools_hash
from tests.property.reference import blocks, extends

from addendum.agent.context.requests import Sent
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec

NATIVE = {
    "by value": "anthropic:claude-opus-5-5",
    "by reference": "anthropic:claude-opus-5-5+by-reference",
    "items": "openai:gpt-6.2-sol",
    "blocks": "deepseek:deepseek-flash",
}
"""Routes that take tools in mid-conversation."""

WAYS: dict[str, dict[str, Any]] = {
    **{name: {"route": route} for name, route in NATIVE.items()},
    **{name: {"route": route, "tool_changes": "dispatch"} for name, route in WIRES.items()},
}
"""Every way of telling a change: natively, and through the dispatcher on each wire."""


def canned(name: str, text: str = "Does it.", result: str = "done") -> CannedTool:
    """A server's tool."""
    parameters = {"type": "object", "properties": {"q": STRING, "n": INTEGER}}
    return CannedTool(name, text, parameters, result)


def server(
    name: str, *names: str, on: bool = False, instructions: str | None = None
) -> tuple[ServerSpec, CannedServer]:
    """A server, and what plays it."""
    made = in_process(name, [canned(each) for each in names], instructions)
    return ServerSpec(name=name, server=made, on=on), made


def front(sent: Sent) -> str:
    """Return all that a request says in front of its messages: system text, and nothing else."""
    body = json.loads(sent.body)
    said = [body.get(each) for each in ("system", "instructions", "systemInstruction")]
    first = (body.get("messages") or body.get("input") or [{}])[0]
    first = first if first.get("role") in ("system", "developer") else None
    for tree in said:
        _unmark(tree)
    _unmark(first)
    return json.dumps([*said, first])


def _unmark(tree: Any) -> None:
    """Take the cache marks out of decoded JSON; they may move."""
    if isinstance(tree, list):
        tree[:] = [each for each in tree if not (isinstance(each, dict) and "cachePoint" in each)]  # type: ignore[misc]
        for each in tree:  # type: ignore[misc]
            _unmark(each)
    elif isinstance(tree, dict):
        tree.pop("cache_control", None)
        tree.pop("prompt_cache_breakpoint", None)
        for each in tree.values():  # type: ignore[misc]
            _unmark(each)


def only_grow(sent: list[Sent]) -> None:
    """Fail unless tools and front are the same bytes throughout, and each request extends the one
    before, with no break declared."""
    assert len({front(each) for each in sent}) == 1
    grown = [blocks(each.body, each.context) for each in sent]
    assert all(extends(one, other) for one, other in pairwise(grown))
    assert [each.breaks for each in sent] == [()] * len(sent)


def same_tools(sent: list[Sent]) -> None:
    """Fail unless all requests have the same bytes of tools."""
    assert len({tools_hash(each) for each in sent}) == 1


async def changed(pool: ServerPool, spec: ServerSpec, change: Any) -> None:
    """Have a server change its list, and wait until the client has settled on it."""
    connection = await pool.acquire(spec)
    before = connection.state.revision
    await change
    await connection.until(lambda state: state.revision > before, 5)
    await pool.release(connection)
