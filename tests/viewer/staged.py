"""A house in this process, with the lab as provider, and its pages without a socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
from msgspec import Raw

from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.log.events import (
    AssistantMessage,
    RequestContext,
    RequestHeader,
    RequestSent,
    SessionStart,
    StepEnd,
    StepStart,
    SystemMessage,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.session_log import SessionLog
from addendum.log.store import Store
from addendum.log.values import Call, Config, Header, ToolSchema, Usage
from addendum.stores import MemoryStore
from addendum.tools.mcp.values import ServerSpec
from addendum.viewer.app import build
from addendum.viewer.rooms import House, Setup, open_house
from addendum.viewer.safety import Guard

OPUS = "anthropic:claude-opus-5-5"
BASE = "http://127.0.0.1:8420"
PROMPT = "Be brief. " * 400


def spec(name: str, tools: list[CannedTool]) -> ServerSpec:
    """A server of canned tools in this process."""
    return ServerSpec(name=name, server=in_process(name, tools))


def canned(name: str, result: str = "done") -> CannedTool:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    return CannedTool(name, f"Says what it knows of {name}.", schema, result)


class Stage:
    """A house, its application and a browser of few words.

    Attributes:
        house: The house.
        guard: The application.
        client: Speaks to it.
    """

    def __init__(self, house: House, guard: Guard, client: httpx2.AsyncClient) -> None:
        self.house = house
        self.guard = guard
        self.client = client

    async def get(self, path: str, **headers: str) -> str:
        answer = await self.client.get(path, headers=headers)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.text

    async def post(self, path: str, body: dict[str, Any], code: int = 200) -> dict[str, Any]:
        answer = await self.client.post(
            path, json=body, headers={"x-addendum-token": self.guard.token}
        )
        assert answer.status_code == code, answer.text
        return answer.json()

    async def begin(self, text: str = "hello", route: str = OPUS) -> str:
        """Start a conversation and wait for its first turn; return its address."""
        url = (await self.post("/new", {"text": text, "route": route}))["url"]
        await self.quiet(url)
        return url

    async def quiet(self, url: str) -> None:
        """Wait until no turn runs."""
        room = await self.house.room(url.removeprefix("/s/"))
        await room.quiet.wait()


@asynccontextmanager
async def stage(
    *servers: ServerSpec, store: Store | None = None, **setup: Any
) -> AsyncGenerator[Stage]:
    """Open a house whose conversations the lab answers."""
    given = Setup(**{"route": OPUS, "lab": True, "instructions": PROMPT, **setup})
    async with open_house(given, store=store or MemoryStore(), servers=servers) as house:
        guard = build(house)
        transport = httpx2.ASGITransport(app=guard)
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            yield Stage(house, guard, client)


# -- long sessions ------------------------------------------------------------------------------


def long_log(turns: int, session: str = "long") -> SessionLog:
    """A log of 13 events a turn: a call, its result and an answer in each."""
    log = SessionLog(session)
    schema = Raw(b'{"type":"object","properties":{"q":{"type":"string"}}}')
    tools = (ToolSchema("look", "Looks. " * 20, schema),)
    log.append(SessionStart(session))
    context = 0
    number = read = 0
    for turn in range(1, turns + 1):
        log.append(TurnStart(turn))
        log.append(StepStart(turn, 1))
        if turn == 1:
            log.append(SystemMessage("Be brief. " * 300))
        log.append(UserMessage(turn, f"Question {turn}: what is there? " * 3))
        if turn == 1:
            config = Config("anthropic", "claude-opus-5-5", max_tokens=1000)
            log.append(RequestHeader(Header(config, tools), "initial"))
            made = RequestContext(OPUS, "anthropic_messages", "in-history", "by-value", "block")
            context = log.append(made).seq
        for step in (1, 2):
            if step == 2:
                log.append(StepStart(turn, 2))
            number += 1
            log.append(RequestSent(turn, step, number, OPUS, context))
            prompt = 1000 + number * 40
            usage = Usage(prompt, read, prompt - read, 20)
            read = prompt
            text = f"Answer {turn} of step {step}. " * 4
            native = (Raw(f'{{"type":"text","text":"{text}"}}'.encode()),)
            if step == 2:
                said = AssistantMessage(
                    turn, 2, OPUS, "anthropic_messages", text=text, native=native, usage=usage
                )
                log.append(said)
            else:
                call = Call(f"c{turn}", "look", '{"q":"x"}')
                item = f'{{"type":"tool_use","id":"c{turn}","name":"look","input":{{"q":"x"}}}}'
                log.append(
                    AssistantMessage(
                        turn,
                        1,
                        OPUS,
                        "anthropic_messages",
                        calls=(call,),
                        native=(Raw(item.encode()),),
                        usage=usage,
                    )
                )
                log.append(ToolCall(turn, 1, f"c{turn}", "look", '{"q":"x"}'))
                log.append(ToolResult(turn, 1, f"c{turn}", "look", f"seen {turn} " * 30))
            log.append(StepEnd(turn, step))
        log.append(TurnEnd(turn))
    return log


async def stored(store: Store, log: SessionLog) -> None:
    """Put a log into a store."""
    lease = await store.acquire(log.session)
    await log.flush(store, lease)
    await store.release(lease)


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until something holds."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.lowlevel.checkpoint()
