"""Dispatcher table T54 to T74: where prompt texts, the tail, summaries and marks stand.

Each placement is played with a moved tail, as the table has it, and with the route's own; the
judge's rules for marks, tails and lookback hold in both.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    LONG,
    Stage,
    body,
    breaks,
    fn,
    server,
    stage,
    thinking,
)
from tests.property.judging import count, rules

from addendum.agent.context.requests import Sent
from addendum.agent.replay import replay
from addendum.cache.figures import Totals, judge
from addendum.cache.invariants import check
from addendum.errors import ConfigurationError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import AssistantMessage
from addendum.log.session_log import SessionLog

pytestmark = pytest.mark.anyio

OPUS = "anthropic:claude-opus-4-8"
BEDROCK = "bedrock:anthropic.claude-opus-5-5"
NOVA = "bedrock:amazon.nova-pro"
RESPONSES = "openai:gpt-6.1-sol"
TEXTS: dict[str, Any] = {
    "instructions": LONG,
    "conversation_instructions": "This one is about boats. " * 120,
    "turn_instructions": "Be brief.",
}
TAILS = pytest.mark.parametrize("tail", ["moved", "auto"])


def marks(sent: Sent) -> list[str]:
    """Where the marks of an Anthropic request stand: `tools`, `system 0`, `message 2.0` ..."""
    found = body(sent)
    places = ["tools" for tool in found.get("tools", []) if "cache_control" in tool]
    places += [f"system {at}" for at, b in enumerate(found["system"]) if "cache_control" in b]
    for at, message in enumerate(found["messages"]):
        for part, block in enumerate(message["content"]):
            if isinstance(block, dict) and "cache_control" in block:
                places.append(f"message {at}.{part}")
    return places


def points(sent: Sent) -> list[str]:
    """The same for a Converse request."""
    found = body(sent)
    tools = found.get("toolConfig", {}).get("tools", [])
    places = ["tools" for each in tools if "cachePoint" in each]
    places += [f"system {at}" for at, b in enumerate(found["system"]) if "cachePoint" in b]
    for at, message in enumerate(found["messages"]):
        places += [f"message {at}" for block in message["content"] if "cachePoint" in block]
    return places


def first_texts(sent: Sent) -> list[str]:
    """The texts of the newest user message that is no result."""
    for message in reversed(body(sent)["messages"]):
        content = message["content"]
        if message["role"] == "user" and any("text" in block for block in content):
            return [block["text"] for block in content if "text" in block]
    raise AssertionError


async def judged(here: Stage, route: str) -> Totals:
    """Check the session's rules and return its totals."""
    log = SessionLog.load("s", await here.store.read("s"))
    records = [each.record for each in replay(log)]
    assert [each.body for each in records] == [sent.body for sent in here.sent]
    assert check(records, rules(route)) == ()
    assert here.refused() == []
    return judge(records, rules(route), count).totals


@TAILS
async def test_case_t54_the_first_turn_marks_both_texts(tail: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(OPUS, tail=tail, **TEXTS)) as session:
            await session.run("one")
            found = marks(session.sent[0])
            assert found[:3] == ["tools", "system 0", "system 1"] and len(found) == 4
            if tail == "moved":
                assert [text[:19] for text in first_texts(session.sent[0])] == [
                    "<turn_instructions>",
                    "one",
                ]
                assert found[3] == "message 0.1"
        await judged(here, OPUS)


@TAILS
async def test_case_t55_later_turns_mark_the_history_in_place_of_the_conversation(
    tail: str,
) -> None:
    async with stage() as here:
        async with here.open(here.agent(OPUS, tail=tail, **TEXTS)) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
            third = body(session.sent[2])
            assert third["system"][1]["text"] == body(session.sent[0])["system"][1]["text"]
            if tail == "moved":
                # The end of the history in front of the tail, and the end of the request.
                assert marks(session.sent[2]) == ["tools", "system 0", "message 3.0", "message 4.1"]
        assert (await judged(here, OPUS)).undeclared_misses == 0


@TAILS
async def test_case_t56_without_tools_the_conversation_is_marked_again(tail: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(OPUS, tail=tail, tools=[], **TEXTS)) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
            assert marks(session.sent[2])[:2] == ["system 0", "system 1"]
            assert len(marks(session.sent[2])) == 4
        assert (await judged(here, OPUS)).undeclared_misses == 0


@TAILS
@pytest.mark.parametrize("route", [OPUS, BEDROCK, CHAT])
async def test_case_t57_a_tail_that_changes_each_turn_costs_no_miss(route: str, tail: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(route, tail=tail, **TEXTS)) as session:
            for text in ("one", "two", "three", "four"):
                session.turn_instructions = f"Think of {text}."
                await session.run(text)
            assert breaks(session) == []
        assert (await judged(here, route)).misses == 0


async def test_case_t58_without_caching_the_tail_stands_in_the_system_text() -> None:
    async with stage() as here:
        async with here.open(here.agent(BEDROCK, caching=False, **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
            for sent in session.sent:
                assert b"cachePoint" not in sent.body
                assert "Be brief." in body(sent)["system"][-1]["text"]
                assert b"Be brief." not in json.dumps(body(sent)["messages"]).encode()


@TAILS
async def test_case_t59_two_marks_in_messages_leave_the_conversation_unmarked(tail: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(BEDROCK, tail=tail, **TEXTS)) as session:
            for text in ("one", "two", "three"):
                await session.run(text)
            found = points(session.sent[2])
            assert len(found) <= 4 and "message 0" not in found
            # A point stands behind its text: behind the static one, and nowhere else.
            assert [each for each in found if each.startswith("system")] == ["system 1"]
            assert len([each for each in found if each.startswith("message")]) == 2
        assert (await judged(here, BEDROCK)).undeclared_misses == 0


@TAILS
async def test_case_t60_nova_takes_marks_on_text_alone(tail: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(NOVA, tail=tail, **TEXTS)) as session:
            for text in ("one", "two"):
                await session.run(text)
            for sent in session.sent:
                found = points(sent)
                assert "tools" not in found and b"ttl" not in sent.body
                assert any(each.startswith("system") for each in found)
                assert any(each.startswith("message") for each in found)
        await judged(here, NOVA)


async def test_case_t61_openrouters_first_tail_stands_behind_the_message() -> None:
    route = "openrouter:anthropic/claude-opus-4.8"
    async with stage() as here:
        async with here.open(here.agent(route, tail="moved", **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
            for sent, begins in zip(
                session.sent,
                # Conversations are told apart by what they begin with.
                (["one", "<turn_instructions>"], ["one", "<turn_instructions>", "two"]),
                strict=True,
            ):
                texts = [
                    part["text"]
                    for message in body(sent)["messages"]
                    if message["role"] == "user"
                    for part in message["content"]
                ]
                assert [text[: len(begin)] for text, begin in zip(texts, begins, strict=True)] == (
                    begins
                )
        await judged(here, route)


def loop(text: str, steps: int, *, summary: str | None = None) -> ScriptStep:
    """A turn of so many requests, each but the last with one call."""
    call = Entry(calls=(ScriptCall("web", {"q0": "x"}),))
    return ScriptStep(text, (*[call] * (steps - 1), Entry(text="Done.")), summary=summary)


@TAILS
@pytest.mark.parametrize("route", [OPUS, BEDROCK])
async def test_case_t62_a_loop_moves_the_end_mark_and_not_the_tail(route: str, tail: str) -> None:
    async with stage(Script((loop("one", 2), loop("two", 6)))) as here:
        async with here.open(here.agent(route, tail=tail, **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
            ends = [(marks if route == OPUS else points)(sent)[-1] for sent in session.sent[2:]]
            assert len(set(ends)) == len(ends) == 6
            if tail == "moved":
                for sent in session.sent[2:]:
                    texts = first_texts(sent)
                    assert texts[0].startswith("<turn_instructions>") and texts[1] == "two"
        assert (await judged(here, route)).undeclared_misses == 0


@TAILS
async def test_case_t63_a_task_alone_is_marked_at_its_end_at_every_step(tail: str) -> None:
    async with stage(Script((loop("the task", 5),))) as here:
        async with here.open(here.agent(OPUS, tail=tail, **TEXTS)) as session:
            await session.run("the task")
            for sent in session.sent:
                messages = body(sent)["messages"]
                last = max(at for at, each in enumerate(messages) if each["role"] == "user")
                part = len(messages[last]["content"]) - 1
                assert marks(sent)[-1] == f"message {last}.{part}"
        assert (await judged(here, OPUS)).undeclared_misses == 0


@TAILS
@pytest.mark.parametrize("route", [RESPONSES, "openai-chat:gpt-5.6"])
async def test_case_t64_the_first_message_has_both_texts_and_never_the_tail(
    route: str, tail: str
) -> None:
    async with stage() as here:
        async with here.open(here.agent(route, tail=tail, **TEXTS)) as session:
            await session.run("one")
            await session.run("two")
            for sent in session.sent:
                found = body(sent)
                items = found["input"] if "input" in found else found["messages"]
                first = next(each for each in items if "content" in each)
                assert first["role"] in ("developer", "system")
                assert [part["text"] for part in first["content"]] == [
                    TEXTS["instructions"],
                    TEXTS["conversation_instructions"],
                ]
        await judged(here, route)


async def _carriers(here: Stage, route: str, **texts: Any) -> list[str]:
    """The first message of all requests behind a compaction: two live, two after a restart."""
    agent = here.agent(route, **texts)
    async with here.open(agent) as session:
        await session.run("one")
        await session.compact("They spoke of boats.")
        await session.run("two")
        await session.run("three")
    async with here.open(agent) as session:
        await session.run("four")
        await session.run("five")
    messages = [body(sent)["messages"] for sent in here.sent[1:]]
    return [
        json.dumps(next(block for block in each[0]["content"] if "boats" in str(block)))
        .replace(', "cache_control": {"type": "ephemeral"}', "")
        for each in messages
    ]  # fmt: skip


@TAILS
async def test_case_t65_a_summary_is_one_message_live_and_restored(tail: str) -> None:
    async with stage() as here:
        carriers = await _carriers(here, OPUS, **TEXTS | {"tail": tail})
        assert len(set(carriers)) == 1 and len(carriers) == 4
        totals = await judged(here, OPUS)
        assert totals.misses <= 1 and totals.undeclared_misses == 0


async def test_case_t66_without_conversation_text_it_stands_in_the_same_place() -> None:
    async with stage() as here:
        plain = await _carriers(here, OPUS, instructions=LONG)
        assert len(set(plain)) == 1
        assert (await judged(here, OPUS)).undeclared_misses == 0
    async with stage() as here:
        assert set(await _carriers(here, OPUS, **TEXTS)) == set(plain)


@TAILS
async def test_case_t67_summary_and_conversation_give_their_marks_up(tail: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(OPUS, tail=tail, **TEXTS)) as session:
            await session.run("one")
            await session.compact("They spoke of boats.")
            for text in ("two", "three", "four"):
                await session.run(text)
            found = marks(session.sent[-1])
            assert len(found) == 4 and found[:2] == ["tools", "system 0"]
            assert not any(each.startswith("message 0.") for each in found)
        assert (await judged(here, OPUS)).undeclared_misses == 0


async def test_case_t68_a_summary_is_no_turn_of_the_conversation() -> None:
    async with stage() as here:
        async with here.open(here.agent(OPUS, **TEXTS)) as session:
            await session.run("one")
            await session.compact("They spoke of boats.")
            # There is no turn to cut, to keep or to say otherwise.
            with pytest.raises(ConfigurationError, match="the model sees none"):
                await session.rewind()
            await session.run("two")
            await session.rewind()
            await session.run("three")
            assert b"They spoke of boats." in session.sent[-1].body
        await judged(here, OPUS)


@pytest.mark.parametrize("route", [OPUS, CHAT, RESPONSES, BEDROCK, "gemini:gemini-3.8-flash"])
async def test_case_t69_rounds_without_text_stay_two_messages(route: str) -> None:
    async with stage(Script((loop("one", 3), loop("two", 1)))) as here:
        agent = here.agent(route)
        async with here.open(agent) as session:
            await session.run("one")
        async with here.open(agent) as session:
            await session.run("two")
            found = body(session.sent[-1])
            if "contents" in found:
                roles = [each["role"] for each in found["contents"]]
                assert roles == ["user", "model", "user", "model", "user", "model", "user"]
            elif "input" in found:
                kinds = [each.get("type") for each in found["input"]]
                rounds = ["function_call", "function_call_output"] * 2
                assert [kind for kind in kinds if kind in rounds] == rounds
            else:
                roles = [each["role"] for each in found["messages"]]
                assert roles.count("assistant") == 3
        await judged(here, route)


@pytest.mark.parametrize("route", [OPUS, CHAT, RESPONSES, BEDROCK, "gemini:gemini-3.8-flash"])
async def test_case_t70_grouping_error_flag_and_text_are_restored(route: str) -> None:
    calls = (ScriptCall("web", {"q0": "é  "}), ScriptCall("none", {}), ScriptCall("web", {}))
    first = Entry(text="  I will look.\n", calls=calls)
    script = Script((ScriptStep("one", (first, Entry(text="\n done  "))), loop(" two ", 1)))
    async with stage(script) as here:
        agent = here.agent(route)
        async with here.open(agent) as session:
            await session.run("one")
            before = session.sent[-1]
        async with here.open(agent) as session:
            await session.run(" two ")
            after = session.sent[-1].body.decode()
            for text in ("  I will look.\\n", "\\n done  ", '" two "', "é  "):
                assert text in after
            # One after the other is the same request, extended.
            log = session.log
            records = [each.record for each in replay(log)]
            assert records[1].body == before.body
        assert (await judged(here, route)).undeclared_misses == 0


@pytest.mark.parametrize("route", [CLAUDE, BEDROCK, RESPONSES])
async def test_case_t71_signed_reasoning_is_for_its_own_model(route: str) -> None:
    async with stage(thinking("one", "two", "three", "four")) as here:
        agent = here.agent(route, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("more"))
            await session.run("two")
        async with here.open(agent) as session:
            await session.run("three")
            log = session.log
            answers = [e.data for e in log.events if isinstance(e.data, AssistantMessage)][:2]
            # Byte for byte as they came, in the request that follows on a restart.
            for raw in (raw for answer in answers for raw in answer.native):
                assert bytes(raw) in session.sent[-1].body
            assert len([raw for answer in answers for raw in answer.native]) == 4
        other = "openai-chat:gpt-4.1" if route != RESPONSES else CLAUDE
        moved = here.agent(other, base_url=here.lab.base_url(other.split(":")[0]))
        async with here.open(moved) as session:
            await session.run("four")
            for word in (b"signature", b"encrypted_content", b"about one"):
                assert word not in session.sent[-1].body
        assert here.refused() == []


@pytest.mark.parametrize("ttl", ["5m", "1h"])
async def test_case_t74_all_marks_have_one_lifetime(ttl: str) -> None:
    async with stage() as here:
        for asked in ("1h" if ttl == "5m" else "5m", ttl):
            agent = here.agent(OPUS, ttl=asked, mcp_servers=[server()], **TEXTS)
            async with here.open(agent) as session:
                await session.run(f"asked for {asked}")
                await session.tools.enable("github")
                await session.run(f"once more {asked}")
        for sent in here.sent[2:]:
            assert len(marks(sent)) == 4
            assert sent.body.count(b'"ttl":"1h"') == (4 if ttl == "1h" else 0)
        await judged(here, OPUS)
