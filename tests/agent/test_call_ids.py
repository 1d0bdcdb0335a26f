"""Call ids: an answer's own go back as they came, those of another route fit this one."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from tests.agent.stage import CHAT, CLAUDE, body, fn, stage

from addendum.agent.context.requests import Sent
from addendum.log.events import AssistantMessage
from addendum.wire.transport import Transport, TransportSettings

pytestmark = pytest.mark.anyio


def chunks(*deltas: dict[str, Any], reason: str) -> bytes:
    base = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    events: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    events.append({**base, "choices": [], "usage": usage})
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return b"".join(lines) + b"data: [DONE]\n\n"


def calling(call_id: str, name: str = "web") -> bytes:
    function = {"name": name, "arguments": '{"q0":"a"}'}
    call = {"index": 0, "id": call_id, "type": "function", "function": function}
    return chunks({"role": "assistant", "tool_calls": [call]}, reason="tool_calls")


SAYING = chunks({"role": "assistant", "content": "done"}, reason="stop")


class Answers(httpx2.AsyncBaseTransport):
    """A chat endpoint that gives these answers; the lab's providers for all other wires."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *answers: bytes) -> None:
        self.inner, self.left = inner, list(answers)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if "chat/completions" not in str(request.url) or not self.left:
            return await self.inner.handle_async_request(request)
        await request.aread()
        media = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=media, content=self.left.pop(0))


def ids(sent: Sent) -> tuple[list[str], list[str]]:
    """The ids of a request's calls and of its results."""
    calls: list[str] = []
    results: list[str] = []
    for message in body(sent)["messages"]:
        calls += [call["id"] for call in message.get("tool_calls") or ()]
        if "tool_call_id" in message:
            results.append(message["tool_call_id"])
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if block["type"] == "tool_use":
                calls.append(block["id"])
            elif block["type"] == "tool_result":
                results.append(block["tool_use_id"])
    return calls, results


@pytest.mark.parametrize(
    ("route", "call_id"),
    [("compatible:kimi-k3", "functions.web:0"), (CHAT, "call_" + "a" * 60)],
)
async def test_an_answers_own_id_goes_back_as_it_came(route: str, call_id: str) -> None:
    async with stage() as here:
        inner = httpx2.ASGITransport(app=here.lab.app)
        client = httpx2.AsyncClient(transport=Answers(inner, calling(call_id), SAYING, SAYING))
        transport = Transport(TransportSettings(retries=0), client=client)
        async with here.open(here.agent(route, transport=transport)) as session:
            await session.run("go")
            await session.run("on")
            assert ids(session.sent[-1]) == ([call_id], [call_id])
        # A new projector says the same.
        async with here.open(here.agent(route, transport=transport)) as session:
            await session.run("again")
            assert ids(session.sent[-1]) == ([call_id], [call_id])
        await client.aclose()


@pytest.mark.parametrize("call_id", ["functions.web:0", "x" * 64, "tooläé", "a b"])
async def test_ids_of_another_route_fit_where_they_go(call_id: str) -> None:
    async with stage() as here:
        inner = httpx2.ASGITransport(app=here.lab.app)
        client = httpx2.AsyncClient(transport=Answers(inner, calling(call_id), SAYING))
        transport = Transport(TransportSettings(retries=0), client=client)
        agent = here.agent("compatible:kimi-k3", transport=transport)
        async with here.open(agent) as session:
            await session.run("one")
            session.use(here.agent(CLAUDE).setup.route)
            await session.run("two")
            session.use(here.agent(CHAT).setup.route)
            await session.run("three")
            for sent, pattern in ((session.sent[-2], 64), (session.sent[-1], 40)):
                (call,), (result,) = ids(sent)
                assert call == result
                assert len(call) <= pattern
                assert call.replace("_", "").replace("-", "").isalnum()
                assert call.isascii()
        assert here.refused() == []
        await client.aclose()


async def test_an_id_that_comes_twice_is_made_unique_elsewhere() -> None:
    async with stage() as here:
        inner = httpx2.ASGITransport(app=here.lab.app)
        twice = [calling("call_0"), SAYING, calling("call_0"), SAYING]
        client = httpx2.AsyncClient(transport=Answers(inner, *twice))
        transport = Transport(TransportSettings(retries=0), client=client)
        agent = here.agent("compatible:x", transport=transport, tools=[fn("web")])
        async with here.open(agent) as session:
            await session.run("one")
            await session.run("two")
            assert [
                call.id
                for event in session.log.events
                if isinstance(event.data, AssistantMessage)
                for call in event.data.calls
            ] == ["call_0", "call_0"]
            session.use(here.agent(CLAUDE).setup.route)
            await session.run("three")
            calls, results = ids(session.sent[-1])
            assert calls == results
            assert len(set(calls)) == 2
            await session.run("/call web {}")
            assert ids(session.sent[-1])[0][:2] == calls
        assert here.refused() == []
        await client.aclose()
