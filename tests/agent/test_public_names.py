"""What a program may use of an agent and a session: a name more is a promise, one less breaks."""

from __future__ import annotations

import pytest
from tests.agent.stage import CLAUDE, stage

pytestmark = pytest.mark.anyio

AGENT = "open setup"
SESSION = """
    agent id log prompts registry route sent state tools
    conversation_instructions disabled instructions turn_instructions
    run stream pending decide stream_decide
    edit retry rewind stream_again
    aclose compact fork rehead result start_series tool_history use
    keep_alive keep_alive_price switch_cost
"""


def public(instance: object) -> set[str]:
    """What an instance has: methods, properties and attributes."""
    return {name for name in dir(instance) if not name.startswith("_")}


async def test_agents_and_sessions_have_these_names_and_no_others() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            assert public(agent) == set(AGENT.split())
            assert public(session) == set(SESSION.split())
