"""An endpoint refuses a definition that the data says it takes: it is left out, and told.

Reports: sandialabs/atlas-ui-3#727, can1357/oh-my-pi#2652, microsoft/vscode#244208, IBM-Cloud/
ibm-cloud-cli-release#226 (one bad tool, every request); Automattic/wordpress-mcp#103, tailcallhq/
forgecode#1359, MoonshotAI/kimi-cli#2531, zed-industries/zed#44875, kirodotdev/Kiro#11027, usestrix/
strix#1088, containers/kubernetes-mcp-server#758 (how it is said).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.agent.stage import CHAT, CLAUDE, DEEPSEEK, LONG, Stage, breaks, data, fn, stage
from tests.agent.test_schemas import made

from addendum.agent.context.epochs import coming
from addendum.agent.context.quarantine import speaks_of_definitions, suspects
from addendum.agent.context.sent import RENDERING
from addendum.agent.session import Session, runtime_of
from addendum.errors import ProviderRefused
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.log.events import ToolLeftOut
from addendum.log.values import ToolSchema
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.refusal import http_error
from addendum.wire.transport import Reply, WireRequest

pytestmark = pytest.mark.anyio

BAD = b'"x-bad":'
"""Stands in a schema that the endpoint refuses; no data says so. In an announcement it is text."""

BY_REFERENCE = "anthropic:claude-opus-5-5+by-reference"
RESPONSES, KIMI = "openai:gpt-6.1-sol", "moonshot:kimi-k3"
CONVERSE, GEMINI = "bedrock:anthropic.claude-opus-5-5", "gemini:gemini-3.8-flash"
REBIND = "openai:gpt-4.1"
ROUTES = (CLAUDE, BY_REFERENCE, DEEPSEEK, RESPONSES, KIMI, CHAT, CONVERSE, GEMINI)


class Refusing:
    """A transport whose endpoint refuses some requests, and else is the lab.

    Attributes:
        refused: How many it refused.
    """

    def __init__(self, here: Stage, said: Callable[[bytes], str], status: int = 400) -> None:
        self._here, self._said, self._status = here, said, status
        self.refused = 0

    @asynccontextmanager
    async def stream(self, request: WireRequest, **more: Any) -> AsyncGenerator[Reply]:
        said = self._said(request.body)
        if said:
            self.refused += 1
            body = json.dumps({"error": {"message": said, "type": "invalid_request_error"}})
            raise http_error(self._status, body.encode(), host="127.0.0.1")
        async with self._here.transport.stream(request, **more) as reply:
            yield reply


def bad(name: str = "bad") -> Any:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "x-bad": True}
    return made(name, schema)


def says(text: str) -> Callable[[bytes], str]:
    """Refuse with this text whatever holds the bad schema."""
    return lambda body: text if BAD in body else ""


def left_out(session: Session) -> list[str]:
    return [each.name for each in data(session) if isinstance(each, ToolLeftOut)]


def by_index(body: bytes) -> str:
    """Refuse in the words of Claude, with the tool's place in the body."""
    if BAD not in body:
        return ""
    value = json.loads(body)
    for at, tool in enumerate(value.get("tools", [])):
        if "x-bad" in json.dumps(tool):
            return f"tools.{at}.custom.input_schema: JSON schema is invalid."
    for number, message in enumerate(value["messages"]):
        for at, block in enumerate(message["content"]):
            if "x-bad" in json.dumps(block):
                place = f"messages.{number}.content.{at}.tool_addition.tool.definition.custom"
                return f"{place}.input_schema: JSON schema is invalid."
    return "input_schema: JSON schema is invalid"


SAID = {
    CLAUDE: by_index,
    BY_REFERENCE: by_index,
    DEEPSEEK: by_index,
    RESPONSES: says("Invalid schema for function 'bad': In context=(), x-bad is not permitted."),
    KIMI: says("tools.function.parameters is not a valid moonshot flavored json schema"),
    CHAT: says("Invalid schema for function 'bad': In context=('x-bad',), schema must have items"),
    CONVERSE: says("The json schema definition at toolConfig.tools.1.toolSpec.inputSchema is bad"),
    GEMINI: says("GenerateContentRequest.tools[0].function_declarations[1].parameters: x-bad"),
}


@pytest.mark.parametrize("route", ROUTES)
async def test_a_bad_tool_of_the_head_is_left_out_and_the_session_goes_on(route: str) -> None:
    async with stage() as here:
        transport = Refusing(here, SAID[route])
        agent = here.agent(route, tools=[fn("web"), bad()], transport=transport)
        async with here.open(agent) as session:
            first = await session.run("one")
            assert first.text.startswith("I heard")
            assert transport.refused == 1
            assert left_out(session) == ["bad"]
            assert any("bad" in each and "without" in each for each in first.notices)
            second = await session.run("two")
            assert (transport.refused, second.notices) == (1, ())
        # It is the same after a restart, and another session does not ask for it.
        async with here.open(here.agent(route, tools=[fn("web"), bad()], transport=transport)) as s:
            await s.run("three")
            assert BAD not in s.sent[-1].body
        async with here.open(agent, "other") as session:
            await session.run("one")
            assert BAD not in session.sent[-1].body
        assert transport.refused == 1
        here.judged(route)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_bad_tool_that_came_later_costs_itself_and_no_byte_of_before(route: str) -> None:
    async with stage() as here:
        transport = Refusing(here, SAID[route])
        agent = here.agent(route, transport=transport, tool_dispatch=True)
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("good"))
            await session.tools.add(bad())
            await session.run("two")
            dispatched = coming(runtime_of(session)).projection == "dispatch"
            # What is announced is text, which nobody checks.
            assert transport.refused == (0 if dispatched else 1)
            result = await session.run("three")
            assert result.text.startswith("I heard")
            assert left_out(session) == ([] if dispatched else ["bad"])
            body = session.sent[-1].body
            assert BAD not in body and b"Tool good" in body
        here.judged(route)


async def test_what_is_left_out_of_a_dispatch_head_is_reached_through_the_dispatcher() -> None:
    async with stage() as here:
        ran: list[Any] = []
        tool = made("bad", {"type": "object", "x-bad": True}, ran)
        transport = Refusing(here, SAID[CHAT])
        agent = here.agent(CHAT, tools=[fn("web"), tool], transport=transport, tool_dispatch=True)
        async with here.open(agent) as session:
            await session.run("one")
            assert left_out(session) == ["bad"]
            await session.run('/call call_tool {"name": "bad", "arguments": {"a": 1}}')
            assert ran == [{"a": 1}]
        here.judged(CHAT)


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
async def test_several_bad_tools_are_found_one_after_the_other(named: bool) -> None:
    def said(body: bytes) -> str:
        wrong = [f"bad{n}" for n in (1, 2) if b'"x-bad%d":' % n in body]
        if not wrong:
            return ""
        return f"Invalid schema for function '{wrong[0]}'" if named else "invalid JSON schema"

    tools = [
        fn("web"),
        *(made(f"bad{n}", {"type": "object", f"x-bad{n}": 1, "properties": {}}) for n in (1, 2)),
    ]
    async with stage() as here:
        transport = Refusing(here, said)
        async with here.open(here.agent(RESPONSES, tools=tools, transport=transport)) as session:
            await session.run("one")
            assert left_out(session) == ["bad1", "bad2"]
            assert transport.refused == (2 if named else 1)
            assert [tool.name for tool in runtime_of(session).state.history.head] == [
                "web",
                "bad1",
                "bad2",
            ]


@pytest.mark.parametrize("route", [CLAUDE, RESPONSES, REBIND])
async def test_where_leaving_out_does_not_help_all_stays_as_it_was(route: str) -> None:
    broken = [True]

    def said(body: bytes) -> str:
        return "input_schema: the schema service is confused" if broken[0] else ""

    async with stage() as here:
        transport = Refusing(here, said)
        agent = here.agent(route, tools=[fn("web"), bad()], transport=transport)
        async with here.open(agent) as session:
            with pytest.raises(ProviderRefused, match="confused"):
                await session.run("one")
            assert 1 < transport.refused <= 4
            assert left_out(session) == []
            assert coming(runtime_of(session)).withheld == ()
            broken[0] = False
            await session.run("two")
            assert BAD in session.sent[-1].body
        here.judged(route)


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("back", [False, True], ids=["open", "reopened"])
@pytest.mark.parametrize("route", [CLAUDE, BY_REFERENCE, DEEPSEEK, RESPONSES, KIMI, REBIND, CHAT])
async def test_switching_off_is_a_way_out_whatever_the_endpoint_says(
    route: str, back: bool, status: int
) -> None:
    """A tool of the head, a tool that was added, and a server's: nothing says what is wrong."""
    schema = {"type": "object", "properties": {}, "x-bad": True}
    canned = in_process("mean", [CannedTool("look", "Looks.", schema, "seen")])
    server = ServerSpec(name="mean", server=canned)
    async with stage() as here:
        transport = Refusing(here, says("Bad Request"), status)
        options = {"transport": transport, "mcp_servers": [server]}
        agent = here.agent(route, tools=[fn("web"), bad("head")], **options)
        async with here.open(agent) as session:
            with pytest.raises(ProviderRefused):
                await session.run("one")
            await session.tools.remove("head")
            await session.run("two")
            await session.tools.add(bad("later"))
            dispatched = coming(runtime_of(session)).projection == "dispatch"
            if not dispatched:
                with pytest.raises(ProviderRefused):
                    await session.run("three")
            await session.tools.remove("later")
            await session.run("four")
            await session.tools.enable("mean")
            if not dispatched:
                with pytest.raises(ProviderRefused):
                    await session.run("five")
            if not back:
                await session.tools.disable("mean")
                assert (await session.run("six")).text.startswith("I heard")
        if back:
            async with here.open(agent) as session:
                await session.tools.disable("mean")
                assert (await session.run("six")).text.startswith("I heard")
        async with here.open(agent) as session:
            await session.run("seven")
            assert BAD not in session.sent[-1].body
        here.judged(route)


async def test_what_was_switched_off_after_a_refusal_is_tried_again_when_it_is_back() -> None:
    mean = [True]
    async with stage() as here:
        transport = Refusing(here, lambda body: "Bad Request" if mean[0] and BAD in body else "")
        async with here.open(here.agent(CLAUDE, transport=transport)) as session:
            await session.run("one")
            await session.tools.add(bad())
            with pytest.raises(ProviderRefused):
                await session.run("two")
            await session.tools.remove("bad")
            await session.run("three")
            mean[0] = False
            await session.tools.add(bad())
            await session.run("four")
            assert BAD in session.sent[-1].body
        here.judged(CLAUDE)


@pytest.mark.parametrize("route", [CLAUDE, BY_REFERENCE, RESPONSES, KIMI])
async def test_another_definition_of_a_refused_name_is_offered(route: str) -> None:
    async with stage() as here:
        transport = Refusing(here, SAID[route])
        agent = here.agent(route, tools=[fn("web"), bad()], transport=transport)
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("bad", 1))
            await session.run("two")
            assert b"Tool bad version 1" in session.sent[-1].body
            assert BAD not in session.sent[-1].body
            # And back: what was refused stays so, and the name goes.
            await session.tools.add(bad())
            await session.run("three")
            assert BAD not in session.sent[-1].body
            assert transport.refused == 1
        here.judged(route)


@pytest.mark.parametrize(
    ("said", "projection"),
    [
        ("Invalid 'tools': array too long. Expected an array with maximum length 20", "dispatch"),
        ("'tools' : maximum number of items is 20", "dispatch"),
        ("At most 20 function declarations can be specified", "dispatch"),
    ],
)
@pytest.mark.parametrize("route", [REBIND, CHAT, RESPONSES])
async def test_more_tools_than_an_endpoint_takes_go_through_the_dispatcher(
    route: str, said: str, projection: str
) -> None:
    def many(body: bytes) -> str:
        return said if body.count(b"Tool t") > 18 else ""

    async with stage() as here:
        transport = Refusing(here, many)
        tools = [fn(f"t{number}") for number in range(30)]
        agent = here.agent(route, tools=tools, transport=transport, instructions=LONG)
        async with here.open(agent) as session:
            await session.run("one")
            assert coming(runtime_of(session)).projection == projection
            await session.run('/call call_tool {"name": "t29", "arguments": {"q0": "x"}}')
            assert transport.refused <= 2
        async with here.open(agent, "other") as session:
            await session.run("one")
            assert transport.refused <= 3
        here.judged(route)


@pytest.mark.parametrize("route", [RESPONSES, KIMI])
async def test_an_epoch_of_an_earlier_release_is_said_anew_where_it_is_refused(route: str) -> None:
    """Then nothing of it was cached; as long as it is not refused it keeps its bytes."""
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}

    def items(body: bytes) -> str:
        missing = b'"a":{"type":"array"}' in body
        return "Invalid schema for function 'list': array schema missing items." if missing else ""

    async with stage() as here:
        transport = Refusing(here, items)
        agent = here.agent(route, transport=transport)
        async with here.open(agent) as session:
            first = msgspec.structs.replace(coming(runtime_of(session)), rendering=1)
            runtime_of(session).requests.log_context(first)
            await session.run("one")
            assert coming(runtime_of(session)) == first
            await session.tools.add(made("list", schema))
            await session.run("two")
            assert transport.refused == 1
            assert left_out(session) == []
            assert coming(runtime_of(session)).rendering == RENDERING
            assert ("rendering changed", "tools") in breaks(session)
            assert b'"a":{"type":"array","items":' in session.sent[-1].body
        here.judged(route)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("tools.0.custom.input_schema.properties: Property keys should match pattern", True),
        ("Invalid schema for function 'a': In context=(), object schema missing properties", True),
        ("Invalid 'tools[0].function.description': string too long", True),
        ("tools.function.parameters is not a valid moonshot flavored json schema", True),
        ("Unknown name \"type\" at 'tools[0].function_declarations[3].parameters'", True),
        ("The value at toolConfig.tools.26.toolSpec.inputSchema.json.type must be object", True),
        ("'required' present but 'properties' is missing", True),
        ("JSON schema conversion failed:\nPattern must start with '^' and end with '$'", True),
        ("'tools' : maximum number of items is 128", True),
        ("max_tokens: 9 > 8", False),
        ("Unsupported parameter: 'temperature'", False),
        ("tool_use ids were found without tool_result blocks immediately after", False),
        ("Invalid schema for response_format 'x': 'additionalProperties' is required", False),
        ("tool_choice: tools[0] is not there", False),
        ('messages.3: Unexpected role "system"', False),
        ("", False),
    ],
)
def test_what_speaks_of_definitions(text: str, about: bool) -> None:
    body = json.dumps({"error": {"message": text}}).encode()
    assert speaks_of_definitions(http_error(400, body, host="h")) is about
    assert not speaks_of_definitions(http_error(404, body, host="h"))


A, B = (fn(name).schema for name in ("alpha", "beta"))
BODIES: dict[str, Any] = {
    "tools": [{"name": "alpha", "input_schema": {}}, {"name": "beta", "input_schema": {}}],
    "input": [{"tools": [{"name": "alpha", "parameters": {}}]}, {"tools": [{"name": "beta"}]}],
    "messages": [{"content": [{"type": "text"}, {"tool": {"definition": {"name": "beta"}}}]}],
    "toolConfig": {"tools": [{"toolSpec": {"name": "alpha"}}, {"toolSpec": {"name": "beta"}}]},
}


@pytest.mark.parametrize(
    ("text", "fresh", "found"),
    [
        ("tools.1.custom.input_schema: invalid", "alpha beta", "beta"),
        ("tools[0].function.parameters is wrong", "alpha beta", "alpha"),
        ("Invalid schema for 'input[1].tools[0].parameters'", "alpha beta", "beta"),
        ("messages.0.content.1.tool_addition.tool.definition.custom.input_schema", "beta", "beta"),
        ("toolConfig.tools.1.toolSpec.inputSchema.json is wrong", "alpha beta", "beta"),
        ("Invalid schema for function 'alpha'", "alpha beta", "alpha"),
        ("invalid JSON schema for tool beta, tools[9]", "alpha beta", "beta"),
        ("the JSON schema is invalid", "alpha beta", "alpha beta"),
        ("the JSON schema is invalid", "beta", "beta"),
        # A wrong place names what was taken before: then it is what is new.
        ("tools.0.custom.input_schema: invalid", "beta", "beta"),
        # Nothing is new: the endpoint has changed its mind of what it names.
        ("Invalid schema for function 'alpha'", "", "alpha"),
        ("the JSON schema is invalid", "", ""),
    ],
)
def test_whom_a_refusal_suspects(text: str, fresh: str, found: str) -> None:
    error = http_error(400, json.dumps({"error": {"message": text}}).encode(), host="h")
    known: dict[str, ToolSchema] = {"alpha": A, "beta": B}
    proven = [tool.definition() for name, tool in known.items() if name not in fresh.split()]
    named = suspects(error, json.dumps(BODIES).encode(), known, proven)
    assert [tool.name for tool in named] == found.split()
