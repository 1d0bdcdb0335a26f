"""C5: thinking in every turn, with tools switched between them, on a lab that checks the prefix."""

from __future__ import annotations

import pytest
from tests.agent.stage import CLAUDE, LONG, fn, server, stage
from tests.property.judging import count, rules

from addendum.agent.replay import replay
from addendum.cache.figures import judge
from addendum.cache.invariants import check
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio

TURNS = 10
KINDS = {
    CLAUDE: b'"type":"thinking"',
    "anthropic:claude-sonnet-5-5": b'"type":"thinking"',
    "bedrock:anthropic.claude-opus-5-5": b'"reasoningContent"',
    "openai:gpt-6.1-sol": b'"type":"reasoning"',
}


@pytest.mark.parametrize("tail", [None, "Be brief."])
@pytest.mark.parametrize("route", list(KINDS))
async def test_c5_no_thinking_is_lost_where_tools_come_and_go(route: str, tail: str | None) -> None:
    call = Entry(thinking="what to call", calls=(ScriptCall("web", {"q0": "x"}),))
    script = Script(
        tuple(
            ScriptStep(f"turn {at}", (call, Entry(text="done", thinking="so it is")))
            for at in range(TURNS)
        )
    )
    async with stage(script) as here:
        agent = here.agent(
            route, instructions=LONG * 4, mcp_servers=[server()], turn_instructions=tail
        )
        async with here.open(agent) as session:
            for at in range(TURNS // 2):
                await (session.tools.disable if at % 2 else session.tools.enable)("github")
                await session.run(f"turn {at}")
        async with here.open(agent) as session:
            for at in range(TURNS // 2, TURNS):
                await session.tools.add(fn(f"late_{at}"))
                await session.run(f"turn {at}")
                if at % 2:
                    await session.tools.remove(f"late_{at}")
        assert here.refused() == []
        counts = [sent.body.count(KINDS[route]) for sent in here.sent]
        assert counts == list(range(2 * TURNS))
        log = SessionLog.load("s", await here.store.read("s"))
        records = [each.record for each in replay(log)]
        assert [each.body for each in records] == [sent.body for sent in here.sent]
        assert check(records, rules(route)) == ()
        totals = judge(records, rules(route), count).totals
        assert totals.ceiling_share is not None and totals.ceiling_share >= 0.999
        assert totals.expected_share is not None and totals.expected_share >= 0.999
        assert totals.misses == 0
