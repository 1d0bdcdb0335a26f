"""D7: a refusal that names tool changes goes one rung down, a refusal of our own fault does not."""

from __future__ import annotations

import json

import pytest

from addendum import Agent
from addendum.agent.exchange import rejected_fields
from addendum.errors import ProviderRefused
from addendum.lab.exchange import Switches
from addendum.lab.server import open_lab
from addendum.log.events import RequestContext, RouteDowngrade
from addendum.routes import SYSTEM_ROLE

pytestmark = pytest.mark.anyio


def extra(name: str) -> None:
    """A tool of the test."""


def refusal(message: str, code: str | None = None) -> bytes:
    error: dict[str, object] = {"type": "invalid_request_error", "message": message}
    if code:
        error["details"] = {"error_code": code}
    return json.dumps({"type": "error", "error": error}).encode()


@pytest.mark.parametrize(
    "text",
    [
        "role 'system' is not supported on this model",
        'messages.3: Unexpected role "system". Allowed roles are user and assistant',
        '{"message":"messages.3: Unexpected role \\"system\\""}',
    ],
)
async def test_a_refused_system_role_is_told_apart(text: str) -> None:
    assert rejected_fields(text, {SYSTEM_ROLE, "tool_addition"}) == (SYSTEM_ROLE,)


async def test_a_model_without_system_messages_goes_on_by_dispatch() -> None:
    async with open_lab() as lab:
        agent = Agent("anthropic:claude-opus-5-5", base_url=lab.base_url("anthropic"))
        async with agent.open("s", store="memory://") as session:
            await session.run("hello")
            await session.tools.add(extra)
            body = refusal("role 'system' is not supported on this model")
            lab.fail_next("anthropic", status=400, body=body)
            result = await session.run("and now")
            events = [event.data for event in session.log.events]
    assert result.text.startswith("I heard")
    (downgrade,) = [data for data in events if isinstance(data, RouteDowngrade)]
    assert (downgrade.rejected, downgrade.projection) == ((SYSTEM_ROLE,), "dispatch")
    latest = [data for data in events if isinstance(data, RequestContext)][-1]
    assert (latest.projection, latest.prompt_update, latest.tail) == ("dispatch", False, "kept")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("tool_addition: 'x' is not declared in `tools`", "tool_reference_unresolved"),
        ("role 'system' must precede an 'assistant' message or end the array", None),
    ],
)
async def test_our_own_fault_never_downgrades(message: str, code: str | None) -> None:
    async with open_lab() as lab:
        agent = Agent("anthropic:claude-opus-5-5", base_url=lab.base_url("anthropic"))
        async with agent.open("s", store="memory://") as session:
            await session.run("hello")
            await session.tools.add(extra)
            lab.fail_next("anthropic", status=400, body=refusal(message, code))
            with pytest.raises(ProviderRefused):
                await session.run("and now")
            assert not any(isinstance(event.data, RouteDowngrade) for event in session.log.events)
            await session.run("once more")


async def test_an_endpoint_that_knows_no_additional_tools_goes_on_by_dispatch() -> None:
    async with open_lab(switches=Switches(openai_additional_tools=False)) as lab:
        agent = Agent("openai:gpt-6.1-sol", base_url=lab.base_url("openai"), tools=[extra])
        async with agent.open("s", store="memory://") as session:
            result = await session.run("hello")
            events = [event.data for event in session.log.events]
            last = json.loads(lab.captures[-1].body)
    assert result.text.startswith("I heard")
    (downgrade,) = [data for data in events if isinstance(data, RouteDowngrade)]
    assert (downgrade.rejected, downgrade.projection) == (("additional_tools",), "dispatch")
    assert [tool["name"] for tool in last["tools"]] == ["extra", "tool_search", "call_tool"]
    assert all(item["type"] == "message" for item in last["input"])
