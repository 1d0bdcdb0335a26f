"""What a real provider reads from its cache after tools were added (A18). Costs a few cents.

    ADDENDUM_LIVE_ROUTE=anthropic:claude-opus-5-5 ANTHROPIC_API_KEY=... pytest tests/live

`ADDENDUM_LIVE_BASE_URL` names another address, such as one that `addendum lab` prints: there no key
is needed. Without the route nothing is sent, whatever keys the environment holds.

The texts of each conversation are its own, so that no cached prompt that others share can be what
was read; and a request is sent once, since a second attempt would read what the first one wrote.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec import Struct

from addendum import Agent
from addendum.agent.session import Session
from addendum.errors import AddendumError
from addendum.lab.filler import fill
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.log.values import Usage
from addendum.routes import Route, credentials, resolve
from addendum.stores import open_store
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec
from addendum.wire.transport import Transport, TransportSettings

ROUTE = "ADDENDUM_LIVE_ROUTE"
BASE_URL = "ADDENDUM_LIVE_BASE_URL"

BLOCK = 64
"""Tokens that a provider may leave unread at the end of a prefix: the storage unit that DeepSeek
published; elsewhere the few tokens that open the answer. Routes that read in steps have theirs."""

pytestmark = [
    pytest.mark.live,
    pytest.mark.anyio,
    pytest.mark.skipif(
        not os.environ.get(ROUTE),
        reason=f"live: costs money; set {ROUTE}, such as anthropic:claude-opus-5-5, and its key",
    ),
]

_INSTRUCTIONS = """\
Conversation {marker}. Answer every message with one short word. A message of the form \
`/call NAME JSON` asks you to call the tool NAME with the arguments JSON, once, if you have it; \
if you do not have it, say so in one word. What follows is a list of words and asks nothing."""


class Talk(Struct, frozen=True):
    """An open conversation.

    Attributes:
        session: The session.
        route: Its route, which can be told of tool changes.
        marker: What makes its texts unlike any other's.
        desk: The server that can be switched on.
    """

    session: Session
    route: Route
    marker: str
    desk: CannedServer

    async def say(self, text: str) -> Usage:
        """Run a turn and return what its first request reported."""
        result = await self.session.run(text)
        return result.requests[0].usage

    @property
    def block(self) -> int:
        """Tokens that may be left unread."""
        return max(BLOCK, self.route.cache.step)


@pytest.fixture
async def talk() -> AsyncGenerator[Talk]:
    try:
        route = resolve(os.environ[ROUTE], base_url=os.environ.get(BASE_URL))
        credentials(route)
    except AddendumError as error:
        pytest.skip(f"live: {error}")
    if route.capabilities.tool_update is None:
        pytest.skip(f"live: {route.full_name} cannot be told of tool changes natively")
    async with _opened(route) as opened:
        yield opened


@asynccontextmanager
async def _opened(route: Route) -> AsyncGenerator[Talk]:
    marker = secrets.token_hex(6)
    desk = in_process("desk", [_tool("read_note"), _tool("list_notes"), _tool("write_note")])
    # Long enough for the cache where a token of the filler has seven bytes, not four.
    words = fill(_INSTRUCTIONS.format(marker=marker), max(512, route.cache.minimum) * 7 // 4)
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(Transport(TransportSettings(retries=0)))
        pool = ServerPool()
        stack.push_async_callback(pool.aclose)
        agent = Agent(
            route,
            instructions=words,
            conversation_instructions=f"The number of this talk is {marker}.",
            tools=[clock],
            mcp_servers=[ServerSpec(name="desk", server=desk)],
            tool_changes="native",
            record=True,
            transport=transport,
            pool=pool,
        )
        store = await open_store("memory://")
        session = await stack.enter_async_context(agent.open(f"live-{marker}", store=store))
        yield Talk(session, route, marker, desk)


async def clock() -> str:
    """Tell the time."""
    return "noon"


def _tool(name: str) -> CannedTool:
    schema = {
        "type": "object",
        "properties": {"note": {"type": "string", "description": "The note's number."}},
        "required": ["note"],
        "additionalProperties": False,
    }
    return CannedTool(name, f"{name.replace('_', ' ').capitalize()} of the desk.", schema, "done")


def known(tokens: int | None) -> int:
    assert tokens is not None, "the provider did not report it, so nothing was measured"
    return tokens


async def test_a18_case_95_an_addition_is_read_up_to_the_preceding_input(talk: Talk) -> None:
    before = await talk.say(f"Hello, this is {talk.marker}.")
    assert known(before.prompt) > talk.route.cache.minimum
    assert known(before.cache_read) <= talk.block, "the history is not unique"
    await talk.session.tools.enable("desk")
    after = await talk.say(f"Hello again, this is {talk.marker}.")
    first, second = talk.session.sent
    assert b"desk__read_note" not in first.body and b"desk__read_note" in second.body
    assert known(after.cache_read) >= known(before.prompt) - talk.block
    assert not [found for sent in talk.session.sent for found in sent.breaks]


async def test_a18_so_it_is_where_the_instructions_change_at_once(talk: Talk) -> None:
    if not talk.route.capabilities.prompt_update:
        pytest.skip(f"live: {talk.route.full_name} takes no changed instructions in its history")
    before = await talk.say(f"Hello, this is {talk.marker}.")
    assert known(before.cache_read) <= talk.block, "the history is not unique"
    await talk.session.tools.enable("desk")
    talk.session.conversation_instructions = f"The number of this talk is {talk.marker}; notes too."
    after = await talk.say(f"Hello again, this is {talk.marker}.")
    assert b"notes too" in talk.session.sent[-1].body
    assert known(after.cache_read) >= known(before.prompt) - talk.block
    assert not [found for sent in talk.session.sent for found in sent.breaks]


async def test_a18_what_was_added_can_be_called_and_what_was_removed_cannot(talk: Talk) -> None:
    call = f'/call desk__read_note {{"note": "{talk.marker}'
    await talk.say(f"Hello, this is {talk.marker}.")
    await talk.session.tools.enable("desk")
    await talk.say(f'{call}-1"}}')
    assert talk.desk.calls == [("read_note", {"note": f"{talk.marker}-1"})]
    await talk.session.tools.disable("desk")
    # Whether the model tries it or says that it has no such tool: nothing runs, and it goes on.
    await talk.say(f'{call}-2"}}')
    assert len(talk.desk.calls) == 1
    # The clock, which was there all the time, still is.
    result = await talk.session.run("/call clock {}")
    assert result.text and len(result.requests) == 2
