"""Compaction beside what else moves: another model, a new head, a prompt, a tail that vanishes."""

from __future__ import annotations

import pytest
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    DEEPSEEK,
    Stage,
    body,
    breaks,
    data,
    fn,
    server,
    stage,
)
from tests.agent.test_compaction import LONGER, PLAIN, RESPONSES, purposes, soon, summaries
from tests.property.judging import count, rules

from addendum import Compaction, Settings
from addendum.agent.replay import replay
from addendum.agent.session import Session
from addendum.cache.figures import judge
from addendum.cache.invariants import check
from addendum.cache.record import RequestRecord
from addendum.errors import AddendumError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import RequestHeader
from addendum.log.session_log import SessionLog
from addendum.routes import resolve
from addendum.tools.functions import tool

pytestmark = pytest.mark.anyio

OTHERS = [
    (CLAUDE, CHAT),
    (CHAT, CLAUDE),
    ("openai:gpt-5", RESPONSES),
    (DEEPSEEK, "gemini:gemini-3.8-flash"),
]


def use(here: Stage, session: Session, route: str) -> None:
    session.use(resolve(route, base_url=here.lab.base_url(route.split(":")[0]), environ={}))


def models(here: Stage) -> list[str]:
    """The model that each request names, where the wire names it in the body."""
    return [body(sent).get("model", sent.context.route.split(":")[1]) for sent in here.sent]


async def check_replay(here: Stage) -> list[RequestRecord]:
    log = SessionLog.load("s", await here.store.read("s"))
    records = [each.record for each in replay(log)]
    assert [each.body for each in records] == [sent.body for sent in here.sent]
    return records


@pytest.mark.parametrize(("first", "then"), OTHERS)
@pytest.mark.parametrize("by_itself", [True, False])
async def test_a_summary_is_asked_of_the_model_that_the_session_goes_on_with(
    first: str, then: str, by_itself: bool
) -> None:
    async with stage() as here:
        agent = here.agent(first, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            await session.tools.enable("github")
            await session.run(LONGER + "two")
            use(here, session, then)
            if by_itself:
                soon(session)
            else:
                await session.compact()
            await session.run("three")
            agent.setup.compaction = None
            await session.run("four")
            assert purposes(session) == ["turn", "turn", "compaction", "turn", "turn"]
            assert len(summaries(session)) == 1
        assert here.refused() == []
        names = [route.split(":")[1] for route in (first, first, then, then, then)]
        assert models(here) == names
        for route in (first, then):
            assert here.judged(route).totals.undeclared_misses == 0
        await check_replay(here)


async def test_a_cache_is_kept_on_the_model_that_has_it() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            use(here, session, CHAT)
            await session.run("two")
            use(here, session, CLAUDE)
            usage = await session.keep_alive()
            assert usage.cache_read == session.sent[0].usage.prompt
            await session.run("three")
        assert here.refused() == []
        claude, chat = CLAUDE.split(":")[1], CHAT.split(":")[1]
        assert models(here) == [claude, chat, claude, claude]
        assert here.judged(CLAUDE).totals.undeclared_misses == 0
        await check_replay(here)


async def test_a_summary_on_the_same_model_leaves_settings_and_log_alone() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, settings=Settings(effort="low"))
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            # Another effort would read nothing of what is there.
            agent.setup.settings = Settings(effort="high")
            await session.compact()
            assert session.sent[-1].usage.cache_read == session.sent[0].usage.prompt
            assert sum(isinstance(each, RequestHeader) for each in data(session)) == 1
            await session.run("two")
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


@pytest.mark.parametrize("tail", [None, "Be brief."])
async def test_reasoning_of_a_turn_that_runs_goes_with_what_was_in_front_of_it(
    tail: str | None,
) -> None:
    calls = Entry(thinking="which tool", calls=(ScriptCall("look"),))
    answer = Entry(text="the answer", thinking="done")
    script = Script(
        (
            ScriptStep(LONGER + "one", (answer,)),
            ScriptStep(LONGER + "two", (calls, calls, answer), summary="In short."),
            ScriptStep("three", (answer,)),
        )
    )
    async with stage(script) as here:

        @tool
        def look() -> str:
            """Look at much."""
            agent.setup.compaction = Compaction(at=1, window=1, keep_turns=0)
            return "much"

        agent = here.agent(CLAUDE, tail="moved", turn_instructions=tail, tools=[look])
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            await session.run(LONGER + "two")
            assert purposes(session) == ["turn", "turn", "compaction", "turn", "turn"]
            # What was thought in front of the break goes, what was thought behind it stays.
            found = [sent.body.count(b'"type":"thinking"') for sent in session.sent[1:]]
            assert found == [0, 1, 0, 1]
            agent.setup.compaction = None
            await session.run("three")
        assert here.refused() == []
        records = await check_replay(here)
        assert check(records, rules(CLAUDE)) == ()
        assert judge(records, rules(CLAUDE), count).totals.undeclared_misses == 0


@pytest.mark.parametrize("route", [CLAUDE, RESPONSES])
@pytest.mark.parametrize("change", ["compact", "rewind", "fork"])
async def test_a_new_head_is_declared_as_such_whatever_moves_behind_it(
    route: str, change: str
) -> None:
    async with stage() as here:
        agent = here.agent(route, mcp_servers=[server()], tool_changes="dispatch")
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            await session.tools.enable("github")
            await session.run(LONGER + "two")
            if change == "fork":
                async with session.fork("child") as child:
                    child.rehead()
                    await child.run("three")
                    assert breaks(child)[-1][0] == "head changed"
                return
            await (session.compact() if change == "compact" else session.rewind())
            session.rehead()
            await session.run("three")
            assert breaks(session)[-1][0] == "head changed"
        assert here.judged(route).totals.undeclared_misses == 0


async def test_of_two_breaks_before_an_answer_both_stay_declared() -> None:
    async with stage() as here:
        agent = here.agent(CHAT, conversation_instructions="Speak French.")
        async with here.open(agent) as session:
            await session.run("one")
            await session.rewind()
            session.conversation_instructions = "Speak Dutch."
            here.lab.fail_next("openai-chat", status=500)
            with pytest.raises(AddendumError):
                await session.run("two")
            await session.rewind()
            await session.run("three")
            # The second cut breaks the messages; the answered request has the other prompt still.
            both = [("prompt rewritten", "system"), ("rewind", "messages")]
            assert breaks(session) == both
            assert [(each.reason, each.at) for each in session.sent[-1].breaks] == both
        assert here.judged(CHAT).totals.undeclared_misses == 0
        log = SessionLog.load("s", await here.store.read("s"))
        again = list(replay(log))[-1].record.declared
        assert [(each.reason, each.at) for each in again] == both


@pytest.mark.parametrize("restart", [True, False])
async def test_a_route_that_only_a_summary_was_asked_of_is_gone_on_from_there(
    restart: bool,
) -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, conversation_instructions="Speak French.", tools=[fn("web")])
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            await session.run(LONGER + "two")
            use(here, session, CHAT)
            await session.compact(keep_turns=1)
            session.conversation_instructions = "Speak Dutch."
            if not restart:
                await session.run("three")
        if restart:
            async with here.open(agent) as session:
                use(here, session, CHAT)
                session.conversation_instructions = "Speak Dutch."
                await session.run("three")
        last = [(each.reason, each.at) for each in here.sent[-1].breaks]
        assert last == [("prompt rewritten", "system")]
        assert here.sent[-1].breaks[0].also[:1] == ("compaction",)
        assert here.judged(CHAT).totals.undeclared_misses == 0


@pytest.mark.parametrize("restart", [True, False])
async def test_a_summary_of_a_cold_session_warms_it_and_nothing_is_consolidated_then(
    restart: bool,
) -> None:
    async with stage() as here:
        agent = here.agent(PLAIN, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            await session.tools.enable("github")
            await session.run(LONGER + "two")
            here.clock.advance(3_600)
            await session.compact(keep_turns=1)
            if not restart:
                await session.run("three")
        if restart:
            async with here.open(agent) as session:
                await session.run("three")
        # The head was written a moment ago; a new one would be paid for again.
        assert breaks(session) == [("lifetime passed", "none"), ("compaction", "messages")]
        last = here.sent[-1]
        assert [each.reason for each in last.breaks] == ["compaction"]
        assert last.usage.cache_read and last.body.count(b"github__t0") == 1
        figures = here.judged(PLAIN)
        assert figures.totals.undeclared_misses == 0
        # What stands in front of the summary is read, and was to be.
        assert figures.requests[-1].ceiling == last.usage.cache_read
        records = await check_replay(here)
        assert [each.reason for each in records[-1].declared] == ["compaction"]


@pytest.mark.parametrize("route", [CHAT, "gemini:gemini-3.8-flash", CLAUDE])
async def test_a_turn_that_runs_is_told_its_tools_again_at_once(route: str) -> None:
    call = Entry(calls=(ScriptCall("github__t0", {"q": "x"}),))
    script = Script(
        (
            ScriptStep(LONGER + "one", (Entry(text="first answer"),)),
            ScriptStep(
                LONGER + "two",
                (Entry(calls=(ScriptCall("look"),)), call, Entry(text="second answer")),
                summary="In short.",
            ),
            ScriptStep("three", (call, Entry(text="third answer"))),
        )
    )
    async with stage(script) as here:

        @tool
        def look() -> str:
            """Look at much."""
            agent.setup.compaction = Compaction(at=1, window=1, keep_turns=0)
            return "much"

        spec = server(instructions="Ask kindly.")
        agent = here.agent(route, tools=[look], mcp_servers=[spec], tool_changes="dispatch")
        async with here.open(agent) as session:
            await session.tools.enable("github")
            await session.run(LONGER + "one")
            await session.run(LONGER + "two")
            agent.setup.compaction = None
        async with here.open(agent) as session:
            await session.run("three")
        asked = [sent.purpose for sent in here.sent]
        assert asked == ["turn", "turn", "compaction", "turn", "turn", "turn", "turn"]
        for sent in here.sent[3:]:
            said = sent.body.decode()
            places = [said.index(part) for part in ("In short.", LONGER + "two", "<tool_update>{")]
            assert places == sorted(places) and said.count("<tool_update>{") == 1
            assert all(name in said for name in ("github__t0", "github__t1"))
        assert [each.reason for sent in here.sent for each in sent.breaks] == ["compaction"]
        assert here.refused() == []
        assert here.judged(route).totals.undeclared_misses == 0
        await check_replay(here)
