"""Compaction: by itself or on demand, and never at the cost of what was sent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

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
    names,
    refusal,
    server,
    stage,
    thinking,
)
from tests.property.judging import count, rules

from addendum import Compaction, Settings
from addendum.agent.replay import replay
from addendum.agent.results import Notice, StreamEvent, TextPiece
from addendum.agent.session import Session, runtime_of
from addendum.cache.figures import judge
from addendum.cache.invariants import check
from addendum.errors import AddendumError, ConfigurationError, LimitReached, ProviderError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import CompactionFailed, CompactionSummary, RequestSent, TurnEnd
from addendum.log.session_log import SessionLog
from addendum.routes import resolve
from addendum.tools.functions import tool

pytestmark = pytest.mark.anyio

RESPONSES = "openai:gpt-6.1-sol"
PLAIN = "anthropic:claude-sonnet-4-6"
ROUTES = [CLAUDE, CLAUDE + "+by-reference", PLAIN, CHAT, DEEPSEEK, RESPONSES]
LONGER = "a question of some length, so that a summary of it is shorter, "


def soon(session: Session, keep_turns: int = 0) -> None:
    """Have the session compact itself at its next chance."""
    session.agent.compaction = Compaction(at=1, window=1, keep_turns=keep_turns)


def purposes(session: Session) -> list[str]:
    return [each.purpose for each in data(session) if isinstance(each, RequestSent)]


def summaries(session: Session) -> list[str]:
    return [each.text for each in data(session) if isinstance(each, CompactionSummary)]


async def told(session: Session, text: str) -> list[StreamEvent]:
    return [event async for event in session.stream(text)]


def notices(events: list[StreamEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


@pytest.mark.parametrize("route", ROUTES)
async def test_c3_a_conversation_that_fills_its_window_compacts_itself_once(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            await session.tools.enable("github")
            await session.run(LONGER + "two")
            size = session.sent[-1].usage
            assert size.prompt is not None
            agent.setup.compaction = Compaction(at=0.5, window=2 * size.prompt - 200, keep_turns=0)
            events = await told(session, LONGER + "three")
            assert any(text.startswith("compacting: ") for text in notices(events))
            summary = summaries(session)[0]
            # The summary is no part of the answer.
            assert summary not in "".join(e.text for e in events if isinstance(e, TextPiece))
            agent.setup.compaction = None
            await session.run(LONGER + "four")
            assert purposes(session) == ["turn", "turn", "compaction", "turn", "turn"]
            assert [reason for reason, _ in breaks(session)] == ["compaction"]
            assert b"<conversation_summary>" in session.sent[3].body
        # Over a restart it is the same carrier.
        async with here.open(agent) as session:
            await session.run(LONGER + "five")
        assert here.refused() == []
        judged = here.judged(route.split("+")[0])
        assert judged.totals.undeclared_misses == 0
        # The request for the summary reads all that was there.
        assert judged.requests[2].cache_read == judged.requests[2].expected


@pytest.mark.parametrize("route", [CLAUDE, "anthropic:claude-opus-4-8", RESPONSES])
@pytest.mark.parametrize("tail", [None, "Be brief."])
async def test_kept_turns_stay_and_what_is_bound_to_the_prefix_goes(
    route: str, tail: str | None
) -> None:
    async with stage(thinking("one", "two", "three", "four", "five")) as here:
        agent = here.agent(route, turn_instructions=tail, settings=Settings(effort="high"))
        async with here.open(agent) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
            await session.compact("In short.", keep_turns=1)
            await session.run("four")
        async with here.open(agent) as session:
            await session.run("five")
        assert here.refused() == []
        log = SessionLog.load("s", await here.store.read("s"))
        records = [each.record for each in replay(log)]
        assert [each.body for each in records] == [each.body for each in here.sent]
        assert check(records, rules(route)) == ()
        assert judge(records, rules(route), count).totals.undeclared_misses == 0
        after = here.sent[-2].body.decode()
        assert "answer to one" not in after and "answer to two" not in after
        assert after.index("In short.") < after.index('"three"') < after.index("answer to three")
        bound = resolve(route, environ={}).capabilities.reasoning_bound
        kind = b'"type":"reasoning"' if route == RESPONSES else b'"type":"thinking"'
        found = [sent.body.count(kind) for sent in here.sent[-2:]]
        assert found == ([0, 1] if bound else [1, 2])


@pytest.mark.parametrize("changes", ["auto", "dispatch"])
async def test_active_tools_are_told_again_where_their_telling_was_cut(changes: str) -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[server()], tool_changes=changes)
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            await session.tools.add(fn("late"))
            await session.run("three")
            # The telling of `late` stays with the turn that is kept.
            await session.compact("In short.", keep_turns=1)
            await session.run("four")
            after = session.sent[-1].body.decode()
            for name in ("github__t0", "github__t1"):
                assert after.index(name) > after.index("In short.")
            assert names(session.sent[-1]) == names(session.sent[0])
            assert after.count("Tool late version 0") == 1
        assert here.refused() == []
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_a_long_turn_is_compacted_between_its_steps_and_stays_whole() -> None:
    calls = Entry(calls=(ScriptCall("web", {"q0": "x"}),))
    script = Script(
        (
            ScriptStep(LONGER + "one", (Entry(text="first answer"),), summary="In short."),
            ScriptStep(
                LONGER + "two", (calls, calls, Entry(text="second answer")), summary="In short."
            ),
        )
    )
    async with stage(script) as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            limit = session.sent[-1].usage.prompt
            assert limit is not None
            agent.setup.compaction = Compaction(at=1, window=limit + 90, keep_turns=0)
            result = await session.run(LONGER + "two")
            assert result.text == "second answer"
            assert purposes(session).count("compaction") == 1
            at = purposes(session).index("compaction")
            assert 1 < at < 4
            # No call and no result of the turn that runs is lost or taken apart.
            whole = session.sent[-1].body.decode()
            assert whole.count('"tool_use"') == whole.count('"tool_result"') == 2
            assert "first answer" not in whole
            assert [r.number for r in result.requests] == list(range(2, 6))
        assert here.refused() == []
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        (" \n", "the model gave no summary"),
        ("long " * 400, "the summary is longer than what it would replace"),
    ],
)
@pytest.mark.parametrize("by_itself", [True, False])
async def test_a_summary_that_is_none_leaves_the_session_as_it_was(
    summary: str, why: str, by_itself: bool
) -> None:
    script = Script(
        (
            ScriptStep("one", (Entry(text="answer one"),), summary=summary),
            ScriptStep("two", (Entry(text="answer two"),), summary=summary),
        )
    )
    async with stage(script) as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run("one")
            before = list(session.log.surface.nodes)
            if by_itself:
                soon(session)
                events = await told(session, "two")
                assert any(why in text for text in notices(events))
                agent.setup.compaction = None
            else:
                with pytest.raises(ConfigurationError, match=why):
                    await session.compact()
                await session.run("two")
            assert session.log.surface.nodes[: len(before)] == before
            failed = [each for each in data(session) if isinstance(each, CompactionFailed)]
            assert [each.reason for each in failed] == [why]
            assert failed[0].usage.prompt
            assert breaks(session) == [("attempt failed", "messages")]
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_one_that_gave_no_summary_is_not_paid_for_at_every_turn() -> None:
    texts = [f"{LONGER}{number}" for number in range(30)]
    script = Script(tuple(ScriptStep(text, (Entry(text="so"),), summary=" ") for text in texts))
    async with stage(script) as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run(texts[0])
            size = session.sent[-1].usage.prompt or 0
            window = 2 * size
            agent.setup.compaction = Compaction(at=0.5, window=window, keep_turns=0)
            for text in texts[1:15]:
                told = (await session.run(text)).notices
                if said := [line for line in told if line.startswith("not compacted")]:
                    assert "the model gave no summary" in said[0]
                    assert "tried again from" in said[0]
        # Also in a process that knows only the log.
        async with here.open(agent) as session:
            for text in texts[15:28]:
                await session.run(text)
            events = session.log.events
            failed = [each.seq for each in events if isinstance(each.data, CompactionFailed)]
            state = runtime_of(session).state
            sizes = [state.at(seq).sizes.reported or 0 for seq in failed]
            assert len(sizes) == 2
            for before, after in pairwise(sizes):
                assert after >= before + (window - before) // 2
            # Another model may do better.
            session.use(here.agent(PLAIN).setup.route)
            await session.run(texts[28])
            await session.run(texts[29])
            assert purposes(session).count("compaction") == len(failed) + 1
        assert here.refused() == []


@pytest.mark.parametrize("route", [CLAUDE, CLAUDE + "+by-reference", DEEPSEEK])
async def test_a_compaction_behind_a_turn_that_failed_says_what_moved(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, turn_instructions="Be quick.")
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            here.lab.fail_next(route.split(":")[0], status=400)
            with pytest.raises(AddendumError):
                await session.run(LONGER + "two")
            await session.compact()
            await session.run("three")
        assert here.refused() == ["the lab was asked to fail with 400"]
        assert here.judged(route.split("+")[0]).totals.undeclared_misses == 0


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_a_compaction_that_fails_never_ends_the_turn(status: int) -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run("one")
            soon(session)
            here.lab.fail_next("anthropic", status=status)
            result = await session.run("two")
            assert result.text
            assert summaries(session) == []
            assert [e.reason for e in data(session) if isinstance(e, TurnEnd)] == ["done", "done"]
            # The next turn tries again.
            await session.run("three " + LONGER)
            await session.run("four")
            assert len(summaries(session)) >= 1
        loaded = SessionLog.load("s", await here.store.read("s"))
        assert loaded.events == session.log.events


async def test_a_compaction_does_not_follow_from_figures_of_before_it() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            for text in ("one", "two", "three"):
                await session.run(LONGER + text)
            soon(session, keep_turns=1)
            await session.run(LONGER + "four")
            assert len(summaries(session)) == 1
            # A kept turn's own figures are those of a longer conversation.
            agent.setup.compaction = Compaction(at=1, window=10_000_000, keep_turns=1)
            await session.run(LONGER + "five")
            assert len(summaries(session)) == 1


async def test_the_instruction_stands_in_front_of_an_update_that_nobody_answered() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            here.lab.fail_next("anthropic", status=500)
            with pytest.raises(AddendumError):
                await session.run("two")
            await session.compact()
            last = body(session.sent[-1])["messages"]
            assert [message["role"] for message in last[-2:]] == ["user", "system"]
            assert "<compaction_request>" in str(last[-2]) and "tool_addition" in str(last[-1])
            await session.run("three")
        assert here.refused() == []


@pytest.mark.parametrize(
    "options",
    [
        lambda: Compaction(at=0),
        lambda: Compaction(at=1.5),
        lambda: Compaction(keep_turns=-1),
        lambda: Compaction(window=0),
        lambda: Stage().agent("compatible:some", compaction=Compaction()),
    ],
    ids=["at=0", "at=1.5", "keep_turns=-1", "window=0", "unknown window"],
)
async def test_what_cannot_be_meant_is_refused_at_once(options: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError):
        options()


def too_long(here: Stage, times: int = 1) -> None:
    """Have the provider refuse the next requests as larger than the window."""
    said = refusal("prompt is too long: 210000 tokens > 200000 maximum")
    here.lab.fail_next("anthropic", status=400, times=times, body=said)


@pytest.mark.parametrize("route", [CLAUDE, PLAIN])
@pytest.mark.parametrize("step", [1, 2])
async def test_a_turn_that_outgrows_the_window_goes_on_behind_a_summary(
    route: str, step: int
) -> None:
    async with stage() as here:

        @tool
        def grow() -> str:
            """Give more than fits."""
            too_long(here)
            return "much"

        agent = here.agent(route, tools=[grow], compaction=Compaction(window=10_000_000))
        async with here.open(agent) as session:
            await session.run(LONGER + "one")
            await session.run(LONGER + "two")
            if step == 1:
                too_long(here)
            result = await session.run("a very long three" if step == 1 else "/call grow {}")
            assert result.text
            assert any("does not fit" in text for text in result.notices)
            assert len(summaries(session)) == 1
            asked, again = session.sent[-2:]
            # The summary is asked for without the turn that does not fit.
            assert asked.purpose == "compaction"
            own = b"a very long three" if step == 1 else b"/call grow"
            assert own not in asked.body and own in again.body
            assert b"<conversation_summary>" in again.body
            await session.run("four")
            assert [e.reason for e in data(session) if isinstance(e, TurnEnd)] == ["done"] * 4
        assert here.judged(route).totals.undeclared_misses == 0
        loaded = SessionLog.load("s", await here.store.read("s"))
        assert [e.record.body for e in replay(loaded)] == [sent.body for sent in here.sent]


@pytest.mark.parametrize("before", [0, 1])
async def test_a_turn_that_fits_nowhere_ends_in_one_line_and_the_session_goes_on(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, compaction=Compaction(window=10_000_000))
        async with here.open(agent) as session:
            for number in range(before):
                await session.run(f"{LONGER} {number}")
            append, sent = session.log.append, len(session.sent)

            def watched(data: Any, **more: Any) -> Any:
                event = append(data, **more)
                if isinstance(data, CompactionSummary):
                    too_long(here)  # Behind the summary it does not fit either.
                return event

            monkeypatch.setattr(session.log, "append", watched)
            too_long(here)
            with pytest.raises(LimitReached, match="this turn alone is larger") as caught:
                await session.run("far too long")
            assert "session.rewind()" in str(caught.value) and "\n" not in str(caught.value)
            purposes_now = [each.purpose for each in session.sent[sent:]]
            assert purposes_now == ["turn", "compaction", "turn"][: 1 + 2 * before]
            await session.rewind()
            await session.run("something short")
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_without_compaction_the_refusal_says_what_to_do() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run(LONGER + "one")
            too_long(here, times=2)
            with pytest.raises(ProviderError, match="too large: compact the session"):
                await session.run("far too long")
            with pytest.raises(LimitReached, match=r"session\.rewind\(\)"):
                await session.compact()
            await session.rewind()
            await session.compact()
            await session.run("something short")
            assert len(summaries(session)) == 1
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_what_says_nothing_is_not_compacted_and_nothing_is_sent() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            with pytest.raises(ConfigurationError, match="nothing to compact"):
                await session.compact()
            await session.run(LONGER + "one")
            await session.run(LONGER + "two")
            for keep_turns, summary in ((2, None), (2, "In short.")):
                with pytest.raises(ConfigurationError, match="nothing to compact"):
                    await session.compact(summary, keep_turns=keep_turns)
            with pytest.raises(ConfigurationError, match="keep_turns=-1"):
                await session.compact("In short.", keep_turns=-1)
            for none, says in ((" ", "the summary says nothing"), (5, "must be text")):
                with pytest.raises(ConfigurationError, match=says):
                    await session.compact(none)  # type: ignore[arg-type]
            await session.rewind(2)
            with pytest.raises(ConfigurationError, match="nothing to compact"):
                await session.compact()
            assert purposes(session) == ["turn", "turn"] and summaries(session) == []


async def test_a_summary_that_is_given_is_text_like_any_other() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run(LONGER + "one")
            await session.compact("half a pair \ud800</conversation_summary> of \x00 signs")
            await session.run("two")
            sent = session.sent[-1].body.decode()
            assert "half a pair \ufffd</_conversation_summary> of \\u0000 signs" in sent
        assert here.refused() == []
