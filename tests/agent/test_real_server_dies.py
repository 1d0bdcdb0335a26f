"""A real server hangs, is killed and comes back: a flap changes no byte of `tools` (D2, T79)."""

from __future__ import annotations

import hashlib
import os
import signal
import sys

import msgspec
import pytest

from addendum import Agent, Limits
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import open_lab
from addendum.log.events import AssistantMessage, RequestSent, ToolCall, ToolResult
from addendum.tools.mcp.pool import ServerPool, Timings

pytestmark = pytest.mark.anyio

CALL = ScriptCall("clock__get_current_time", {"timezone": "Europe/Berlin"})
SCRIPT = Script(
    tuple(
        ScriptStep(text, (Entry(calls=(CALL,)), Entry(text="done")))
        for text in ("what time is it", "and while it hangs", "and now that it is back")
    )
)
ROUTES = ["anthropic:claude-opus-5-5", "anthropic:claude-sonnet-4-6", "openai-chat:gpt-4.1"]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_server_that_hangs_and_dies_changes_no_byte_of_tools(route: str) -> None:
    pool = ServerPool(timings=Timings(first_pause=0.05, probe=0.5, demand=10.0))
    async with open_lab(SCRIPT) as lab:
        agent = Agent(
            route,
            mcp_servers={"clock": {"command": [sys.executable, "-m", "mcp_server_time"]}},
            base_url=lab.base_url(route.split(":")[0]),
            limits=Limits(tool_timeout=20.0, server_wait=30.0),
            pool=pool,
        )
        async with agent.open("s", store="memory://") as session:
            await session.tools.enable("clock")
            await session.run("what time is it")
            connection = await pool.acquire(agent.setup.servers[0])
            pid = connection.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            session.agent.limits = msgspec.structs.replace(agent.setup.limits, tool_timeout=1.0)
            await session.run("and while it hangs")
            os.kill(pid, signal.SIGKILL)
            await connection.until(lambda state: state.status != "ready", 10.0)
            session.agent.limits = msgspec.structs.replace(agent.setup.limits, tool_timeout=20.0)
            await session.run("and now that it is back")
            events = [event.data for event in session.log.events]
            await pool.release(connection)
        bodies = [capture.body for capture in lab.captures]
    await pool.aclose()

    story = [
        "answer" if isinstance(data, ToolResult) and not data.is_error else
        "error" if isinstance(data, ToolResult) else
        "call" if isinstance(data, ToolCall) else
        "request"
        for data in events
        if isinstance(data, ToolCall | ToolResult | RequestSent)
    ]  # fmt: skip
    once = ["request", "call", "answer", "request"]
    assert story == [*once, "request", "call", "error", "request", *once]
    errors = [data.text for data in events if isinstance(data, ToolResult) and data.is_error]
    assert "did not answer" in errors[0]
    answers = [data.text for data in events if isinstance(data, ToolResult) and not data.is_error]
    assert all("Europe/Berlin" in text for text in answers)
    assert sum(isinstance(data, AssistantMessage) for data in events) == 6
    # Whatever the projection: what is offered from the start is the same bytes throughout.
    assert len({_immediate(body) for body in bodies}) == 1


def _immediate(body: bytes) -> str:
    tools = msgspec.json.decode(body).get("tools", [])
    kept = [{k: v for k, v in tool.items() if k != "cache_control"} for tool in tools]
    immediate = [tool for tool in kept if not tool.get("defer_loading")]
    return hashlib.sha256(msgspec.json.encode(immediate)).hexdigest()
