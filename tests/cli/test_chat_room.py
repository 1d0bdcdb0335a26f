"""What a chat goes on with: the prompt that the session has, both parts of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from addendum.agent.agent import Agent
from addendum.cli.chat_room import Wanted, opened
from addendum.lab.server import open_lab
from addendum.routes import resolve
from addendum.stores import open_store

pytestmark = pytest.mark.anyio
ROUTE = "openai-chat:gpt-4.1"


async def test_a_session_that_is_taken_up_keeps_its_whole_prompt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chat.db'}"
    store = await open_store(url)
    async with open_lab() as lab:
        route = resolve(ROUTE, base_url=lab.base_url("openai-chat"))
        agent = Agent(route, instructions="Be brief.", conversation_instructions="It is about tea.")
        async with agent.open("s", store=store) as session:
            await session.run("hello")
    await store.aclose()
    async with opened(Wanted(session="s", lab=True, store=url)) as room:
        assert room.session.instructions == "Be brief."
        assert room.session.conversation_instructions == "It is about tea."
        await room.session.run("more")
        assert not [event for event in room.session.log.events if event.type == "cache/break"]
