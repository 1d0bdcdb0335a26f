"""What stays in the history of a dispatching route, case by case on every wire."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from msgspec import Raw
from tests.cases.dispatching import (
    TEXT_ARGUMENTS,
    WIRES,
    On,
    call,
    declared,
    envelope,
    exchanges,
    on,
    says,
    schema,
)
from tests.property.reference import blocks, extends

from addendum.agent.context.requests import Sent
from addendum.agent.setup import Settings
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.lab.script import Entry, ScriptCall, ScriptStep
from addendum.log import codec
from addendum.log.events import AssistantMessage, ToolCall, ToolResult
from addendum.log.session_log import SessionLog
from addendum.log.values import Call
from addendum.routes import resolve
from addendum.tools.dispatcher import (
    TOOL_DISPATCHER_NAME,
    NotDispatched,
    Resolved,
    resolve_call,
    resolve_dispatched_tool_call,
    rewrite_direct_call,
)
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.apis import Wire
from addendum.wire.apis import wire as wire_api
from addendum.wire.transport import Transport, TransportSettings

pytestmark = pytest.mark.anyio

every_wire = pytest.mark.parametrize("wire", WIRES)
DIRECT = call("weather", "direct", city="Oslo")
OSLO = {"city": "Oslo"}


def api(wire: str) -> Wire:
    return wire_api(resolve(WIRES[wire], environ={}).wire)


def answers(log: SessionLog) -> list[AssistantMessage]:
    return [e.data for e in log.events if isinstance(e.data, AssistantMessage)]


def only_grow(sent: list[Sent]) -> None:
    """Fail unless each request begins with all blocks of the one before."""
    grown = [blocks(each.body, each.context) for each in sent]
    assert all(extends(one, other) for one, other in pairwise(grown))


# -- direct calls ---------------------------------------------------------------------------


@every_wire
async def test_case_t39_a_direct_call_runs_and_stands_as_a_dispatcher_call(wire: str) -> None:
    async with on(wire, says(call("clock"), DIRECT)) as here:
        async with here.open() as session:
            await session.run("go")
            clock, told = here.exchanges(session.sent[-1])
            message = answers(session.log)[0]
            assert (clock.name, told.name) == ("clock", "call_tool")
            assert (told.arguments["name"], told.inner) == ("weather", OSLO)
            assert told.result == 'weather {"city": "Oslo"}'
            if wire not in TEXT_ARGUMENTS:
                assert told.id == message.calls[1].id
            assert (message.calls[1].name, message.calls[1].origin) == ("weather", "direct")
        assert here.ran.names == ["clock", "weather"]


THINKING = {
    "messages": ("thinking", "signature"),
    "converse": ("reasoningContent",),
    "gemini": ("thoughtSignature",),
}
"""Wires that tie no item to the calls behind it; Responses does, and loses both (see its tests)."""


def found(tree: Any, key: str) -> list[Any]:
    """Return the values of a key anywhere in decoded JSON."""
    if isinstance(tree, list):
        return [each for item in tree for each in found(item, key)]  # type: ignore[misc]
    if not isinstance(tree, dict):
        return []
    own = [tree[key]] if key in tree else []
    return own + [each for value in tree.values() for each in found(value, key)]  # type: ignore[misc]


@pytest.mark.parametrize("wire", THINKING)
async def test_case_t40_signed_reasoning_before_it_is_untouched(wire: str) -> None:
    async with on(wire, says(DIRECT, thinking="I think of Oslo.")) as here:
        async with here.open(here.agent(settings=Settings(effort="high"))) as session:
            await session.run("go")
            message = answers(session.log)[0]
            body = json.loads(session.sent[-1].body)
        assert message.original, "the answer as it came is kept beside the rewritten one"
        for key in THINKING[wire]:
            before = found([json.loads(bytes(raw)) for raw in message.original], key)
            assert before and found(body, key)[-len(before) :] == before
        reasoning = [raw for raw in message.original if b"weather" not in bytes(raw)]
        assert all(bytes(raw) in session.sent[-1].body for raw in reasoning)


SHAPES: dict[str, Callable[[Any], bool]] = {
    "messages": lambda raw: raw["type"] == "tool_use" and raw["input"] == {"name": "weather",
                                                                           "arguments": OSLO},
    "responses": lambda raw: raw["type"] == "function_call"
    and json.loads(raw["arguments"]) == {"name": "weather", "arguments": OSLO},
    "chat": lambda raw: json.loads(raw["tool_calls"][0]["function"]["arguments"])
    == {"name": "weather", "arguments": OSLO},
    "converse": lambda raw: raw["toolUse"]["input"] == {"name": "weather", "arguments": OSLO},
    "gemini": lambda raw: raw["functionCall"]["args"]
    == {"name": "weather", "arguments": '{"city":"Oslo"}'},
}  # fmt: skip


@every_wire
async def test_case_t41_the_native_copy_is_rewritten(wire: str) -> None:
    async with on(wire, says(DIRECT)) as here:
        async with here.open() as session:
            await session.run("go")
            message = answers(session.log)[0]
            native = [json.loads(bytes(raw)) for raw in message.native]
            (rewritten,) = [raw for raw in native if "call_tool" in json.dumps(raw)]
            assert SHAPES[wire](rewritten), rewritten
            for raw in message.native:
                assert bytes(raw) in session.sent[-1].body


@every_wire
async def test_case_t42_a_replay_changes_nothing(wire: str) -> None:
    async with on(wire, says(DIRECT, thinking="Hm."), says(user="more")) as here:
        async with here.open() as session:
            await session.run("go")
            message = answers(session.log)[0]
        async with here.open() as session:
            assert answers(session.log)[0] == message
            await session.run("more")
        only_grow(here.stage.sent)
        # Rewriting what was rewritten changes no byte either.
        made = message.calls[0]
        text = rewrite_direct_call(made, string_arguments=wire in TEXT_ARGUMENTS)
        again = api(wire).rewrite(message.native, {made.id: text}, TOOL_DISPATCHER_NAME)
        assert again == message.native


@every_wire
async def test_case_t43_two_direct_calls_are_rewritten_alike_in_any_order(wire: str) -> None:
    async with on(wire, says(DIRECT, call("weather", "direct", city="Rome"))) as here:
        async with here.open() as session:
            await session.run("go")
            message = answers(session.log)[0]
            results = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
        one, two = message.calls
        as_text = wire in TEXT_ARGUMENTS
        texts = {
            each.id: rewrite_direct_call(each, string_arguments=as_text) for each in (one, two)
        }
        rewrite = api(wire).rewrite

        def step(native: tuple[Raw, ...], made: Call) -> tuple[Raw, ...]:
            return rewrite(native, {made.id: texts[made.id]}, TOOL_DISPATCHER_NAME)

        first = step(step(message.original, one), two)
        other = step(step(message.original, two), one)
        assert first == other == message.native
        assert [each.call_id for each in results] == [one.id, two.id]
        assert here.ran.names == ["weather"] * 2


def test_case_t45_who_keeps_a_bare_list_is_told_what_to_rewrite() -> None:
    """A host without our log resolves the call itself. It learns that the call was direct, of a
    tool that is not bound, and what to store in its place; nothing is added to its messages."""
    registry = {"weather": schema("weather", {"city": {"type": "string"}})}
    made = Call("c1", "weather", '{"city": "Oslo"}')
    plain = resolve_dispatched_tool_call(made, registry=registry, bound=())
    assert isinstance(plain, NotDispatched) and plain.call is made
    understood = resolve_call(made, registry=registry, bound=())
    assert isinstance(understood, Resolved)
    assert (understood.call.origin, understood.call.id) == ("direct", "c1")
    stored = rewrite_direct_call(made)
    assert stored == '{"name":"weather","arguments":{"city": "Oslo"}}'
    later = resolve_dispatched_tool_call(
        Call("c1", TOOL_DISPATCHER_NAME, stored), registry=registry, bound=()
    )
    assert isinstance(later, Resolved) and later.call.arguments == understood.call.arguments


# -- broken streams -------------------------------------------------------------------------


class Breaking(httpx2.AsyncBaseTransport):
    """Takes the closing braces from what a model writes as arguments."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await self._inner.handle_async_request(request)
        body = await reply.aread()
        kept = [(k, v) for k, v in reply.headers.items() if k.lower() != "content-length"]
        if b"vnd.amazon" in reply.headers.get("content-type", "").encode():
            body = b"".join(map(_framed, _frames(body)))
        else:
            body = body.replace(b'Oslo\\"}', b'Oslo\\" ')
        return httpx2.Response(reply.status_code, headers=kept, content=body)


def _frames(body: bytes) -> list[bytes]:
    frames: list[bytes] = []
    while body:
        (size,) = struct.unpack(">I", body[:4])
        frames.append(body[:size])
        body = body[size:]
    return frames


def _framed(frame: bytes) -> bytes:
    frame = frame.replace(b'Oslo\\"}', b'Oslo\\" ')[:-4]
    return frame + struct.pack(">I", zlib.crc32(frame))


def breaking(here: On) -> None:
    """Have all answers of this stage arrive broken."""
    inner = httpx2.ASGITransport(app=here.stage.lab.app)
    client = httpx2.AsyncClient(transport=Breaking(inner))
    here.stage.transport = Transport(TransportSettings(retries=0), client=client)


@pytest.mark.parametrize(
    ("made", "stands"),
    [
        (envelope(name="weather", arguments=OSLO), {}),
        (DIRECT, {"name": "weather", "arguments": {}}),
    ],
    ids=["dispatcher", "direct"],
)
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "gemini"])
async def test_case_t46_arguments_that_are_no_json_are_answered_and_mended(
    wire: str, made: ScriptCall, stands: Mapping[str, Any]
) -> None:
    """Gemini sends arguments as JSON of its own, so they cannot be broken there."""
    async with on(wire, says(made), says(user="more")) as here:
        breaking(here)
        async with here.open() as session:
            await session.run("go")
            await session.run("more")
            (told,) = here.exchanges(session.sent[-1])
            (result,) = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
        assert result.is_error and result.code in ("E1", "E8")
        assert (told.name, told.arguments, told.results) == ("call_tool", stands, 1)
        assert not here.ran.calls
        only_grow(here.stage.sent)


# -- storing --------------------------------------------------------------------------------


@every_wire
async def test_case_t50_the_real_tool_is_stored_and_never_sent(wire: str) -> None:
    made = envelope(name="weather", arguments={"city": "Oslo", "days": "2"})
    async with on(wire, says(made)) as here:
        async with here.open() as session:
            await session.run("go")
            raw = [codec.encode_event(event) for event in session.log.events]
            again = SessionLog.load("s", raw)
            (stored,) = answers(again)[0].calls
            (ran,) = [e.data for e in again.events if isinstance(e.data, ToolCall)]
            body = session.sent[-1].body.decode()
            called = [each.name for each in here.exchanges(session.sent[-1])]
            assert called == ["call_tool"] and "call_tool" in declared(session.sent[-1])
            assert "weather" not in declared(session.sent[-1])
        assert (stored.name, stored.origin) == ("weather", "dispatched")
        assert json.loads(ran.arguments) == {"city": "Oslo", "days": 2}
        assert (ran.name, ran.origin) == ("weather", "dispatched")
        assert '"dispatched"' not in body and '"origin"' not in body


@every_wire
async def test_case_t51_calls_of_a_server_that_is_off_stay_as_they_are(wire: str) -> None:
    tool = CannedTool("read", "Reads.", {"type": "object", "properties": {}}, "text")
    steps = says(call("read")), says(user="two"), says(user="three")
    async with on(wire, *steps) as here:
        files = ServerSpec(name="files", server=in_process("files", [tool]))
        async with here.open(here.agent(mcp_servers=[files])) as session:
            await session.tools.enable("files")
            await session.run("go")
            await session.tools.disable("files")
            await session.run("two")
        async with here.open(here.agent(mcp_servers=[files])) as session:
            await session.run("three")
            (told,) = here.exchanges(session.sent[-1])
        assert (told.name, told.arguments["name"]) == ("call_tool", "files__read")
        assert told.result == "text"
        only_grow(here.stage.sent)


# -- many at once ---------------------------------------------------------------------------


def many() -> list[ScriptCall]:
    """25 calls, the eighth of which fails and the twelfth of which is none."""
    made = [envelope(name="weather", arguments={"city": f"City {n}"}) for n in range(25)]
    made[7] = envelope(name="fails", arguments={})
    made[11] = envelope(name="weather", arguments={"town": 1})
    return made


@every_wire
async def test_case_t75_25_calls_at_once_and_the_prefix_holds(wire: str) -> None:
    """In the next request, and in that of the next turn, which brings a tail (V10)."""
    entries = Entry(calls=tuple(many())), Entry(text="done go")
    async with on(wire, ScriptStep("go", entries), says(user="more"), says(user="last")) as here:
        async with here.open() as session:
            await session.run("go")
            told = here.exchanges(session.sent[-1])
            ids = [each.id for each in answers(session.log)[0].calls]
            results = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
            session.turn_instructions = "Answer in one line."
            await session.run("more")
            await session.run("last")
        assert len(told) == 25 and {each.results for each in told} == {1}
        assert [each.call_id for each in results] == ids
        if wire not in TEXT_ARGUMENTS:
            assert [each.id for each in told] == ids
        for place, each in enumerate(told):
            wanted = {7: "it always fails", 11: "do not fit"}.get(place, f"City {place}")
            assert wanted in (each.result or ""), place
        only_grow(here.stage.sent[:2])
        # All requests are judged when the stage is left; what they read was not declared lost.
        assert len(here.stage.sent) == 4 and not [
            b for each in here.stage.sent for b in each.breaks
        ]


def test_a_reader_that_finds_a_missing_result_fails() -> None:
    """The reader above is what these cases rest on."""
    use = {"type": "tool_use", "id": "a", "name": "x", "input": {}}
    body = {"messages": [{"role": "assistant", "content": [use]}]}
    with pytest.raises(AssertionError, match="order of their calls"):
        exchanges("messages", body)
