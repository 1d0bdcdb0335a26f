"""D7: a refusal that names tool changes goes one rung down, a refusal of our own fault does not."""

from __future__ import annotations

import json

import pytest

from addendum import Agent
from addendum.agent.context.exchange import rejected_fields
from addendum.errors import ProviderRefused
from addendum.lab.exchange import Switches
from addendum.lab.runner import run_scenario
from addendum.lab.scenario import Say
from addendum.lab.scenario_file import find
from addendum.lab.server import open_lab
from addendum.log.events import RequestContext, RouteDowngrade, ToolResult
from addendum.routes import MESSAGE_TOOLS, SYSTEM_ROLE, resolve
from addendum.stores import MemoryStore

pytestmark = pytest.mark.anyio


def base() -> None:
    """A tool that is there all the time."""


def extra(name: str) -> None:
    """A tool of the test."""


def refusal(message: str, code: str | None = None) -> bytes:
    error: dict[str, object] = {"type": "invalid_request_error", "message": message}
    if code:
        error["details"] = {"error_code": code}
    return json.dumps({"type": "error", "error": error}).encode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tokenization failed", (MESSAGE_TOOLS,)),
        ("Unrecognized request argument supplied: messages[6].tools", (MESSAGE_TOOLS,)),
        ("Missing required parameter: 'messages[6].content'.", (MESSAGE_TOOLS,)),
        ("All non-assistant messages must contain 'content'", (MESSAGE_TOOLS,)),
        (
            '{"loc":["body","messages",6,"system","content"],"msg":"Field required"}',
            (MESSAGE_TOOLS,),
        ),
        ("Jinja Exception: System message must be at the beginning.", (MESSAGE_TOOLS,)),
        ("Invalid schema for function 'x' in tools[0]", ()),
        ("maximum context length is 9 tokens", ()),
    ],
)
async def test_refused_tools_in_messages_are_told_apart(text: str, found: tuple[str, ...]) -> None:
    assert rejected_fields(text, {MESSAGE_TOOLS}) == found


@pytest.mark.parametrize(
    "text",
    [
        "role 'system' is not supported on this model",
        'messages.3: Unexpected role "system". Allowed roles are user and assistant',
        '{"message":"messages.3: Unexpected role \\"system\\""}',
        "Jinja Exception: System message must be at the beginning.",
        "This model doesn't support system messages.",
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


# -- whole conversations ---------------------------------------------------------------------

REFUSING = [
    pytest.param(
        "anthropic:claude-opus-5-5",
        Switches(claude_tool_changes="by-reference"),
        ("in-history", "by-reference"),
        id="claude by value",
    ),
    pytest.param(
        "anthropic:claude-opus-5-5",
        Switches(claude_tool_changes="none"),
        ("dispatch", "by-value"),
        id="claude at all",
    ),
    pytest.param(
        "deepseek:deepseek-flash",
        Switches(deepseek_tool_changes=False),
        ("dispatch", "by-value"),
        id="deepseek",
    ),
    pytest.param(
        "openai:gpt-6.1-sol",
        Switches(openai_additional_tools=False),
        ("dispatch", "by-value"),
        id="openai items",
    ),
    pytest.param(
        "moonshot:kimi-k3",
        Switches(kimi_message_tools=False),
        ("dispatch", "by-value"),
        id="kimi system messages",
    ),
]


@pytest.mark.parametrize(("name", "switches", "told"), REFUSING)
async def test_an_endpoint_that_refuses_is_downgraded_once_and_known_from_then_on(
    name: str, switches: Switches, told: tuple[str, str]
) -> None:
    scenario, store = find("g2"), MemoryStore()
    async with open_lab(scenario.script(), switches=switches) as lab:
        route = resolve(name, base_url=lab.base_url(name.partition(":")[0]), environ={})

        async def played() -> tuple[list[RouteDowngrade], list[tuple[str, str]], int]:
            before = len(lab.captures)
            run = await run_scenario(scenario, route, store=store, tool_changes="native")
            assert run.report.totals.undeclared_misses == 0 and not run.violations
            # To its end: every turn of the scenario has its answer.
            asked = sum(isinstance(step, Say) for step in scenario.steps)
            assert run.report.requests[-1].turn == asked
            data = [event.data for log in run.sessions for event in log.events]
            refused = sum(each.status != 200 for each in lab.captures[before:])
            return (
                [each for each in data if isinstance(each, RouteDowngrade)],
                [
                    (each.projection, each.definitions)
                    for each in data
                    if isinstance(each, RequestContext)
                ],
                refused,
            )

        downgrades, contexts, refused = await played()
        assert (len(downgrades), refused) == (1, 1)
        assert (downgrades[0].projection, downgrades[0].definitions) == told
        assert contexts[0] != told and contexts[-1] == told and len(contexts) == 2
        # Another session on this endpoint begins where that one went.
        assert await played() == ([], [told], 0)


@pytest.mark.parametrize(("name", "switches", "told"), REFUSING)
async def test_a_refusal_in_a_compaction_request_is_a_downgrade_too(
    name: str, switches: Switches, told: tuple[str, str]
) -> None:
    async with open_lab() as lab:
        base_url = lab.base_url(name.partition(":")[0])
        agent = Agent(name, base_url=base_url, tools=[base], tool_changes="native")
        async with agent.open("s", store="memory://") as session:
            await session.run("hello")
            await session.tools.add(extra)
            await session.run("and now")
            # The endpoint is replaced by one that knows less, just before the compaction.
            lab.switches = switches
            assert (await session.compact()).startswith("Summary of")
            data = [event.data for event in session.log.events]
            (downgrade,) = [each for each in data if isinstance(each, RouteDowngrade)]
            assert (downgrade.projection, downgrade.definitions) == told
            assert [each.status for each in lab.captures] == [200, 200, 400, 200]
            # It goes on, and what was added can be called.
            await session.run('/call extra {"name":"x"}')
            results = [
                each.data for each in session.log.events if isinstance(each.data, ToolResult)
            ]
            assert [(each.name, each.code) for each in results] == [("extra", None)]
            assert [each.status for each in lab.captures[4:]] == [200, 200]
