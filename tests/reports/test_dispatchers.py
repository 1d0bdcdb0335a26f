"""Public reports of dispatchers and of prompt caches around them: each failure, and that it does
not happen.

Each docstring tells what others met, in our words, and where it was reported. Numbers such as B7
are those of the list that these tests follow.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cases.dispatching import (
    WIRES,
    call,
    declared,
    envelope,
    exchanges,
    on,
    says,
    schema,
)
from tests.reports.ground import canned, changed, only_grow, same_tools, server

from addendum.agent.calls.hooks import Hook
from addendum.agent.context.requests import Sent
from addendum.agent.setup import ToolDispatch
from addendum.lab.script import Entry, ScriptStep
from addendum.log.events import AssistantMessage, DeveloperMessage, ToolCall, ToolResult
from addendum.log.values import Call
from addendum.tools.dispatcher import (
    CALL_TOOL,
    CALL_TOOL_TEXT,
    Refused,
    resolve_dispatched_tool_call,
)
from addendum.tools.functions import ToolContext, tool

pytestmark = pytest.mark.anyio

every_wire = pytest.mark.parametrize("wire", WIRES)
ENOUGH = "You are helpful. " * 1_500
"""Longer than the least that any provider caches."""

MARKED = ("messages", "converse")
"""Wires on which we place marks in each request."""
marked = pytest.mark.parametrize("wire", MARKED)


def marks(sent: Sent) -> list[tuple[str, ...]]:
    """Return the paths of a request's marks, in its order."""
    found: list[tuple[str, ...]] = []

    def look(tree: Any, path: tuple[str, ...]) -> None:
        if isinstance(tree, dict):
            for key, value in tree.items():  # type: ignore[misc]
                if key in ("cache_control", "cachePoint"):
                    found.append(path)
                look(value, (*path, str(key)))  # type: ignore[misc]
        elif isinstance(tree, list):
            for place, value in enumerate(tree):  # type: ignore[misc]
                look(value, (*path, str(place)))

    look(json.loads(sent.body), ())
    return found


def loop(steps: int, user: str = "go") -> ScriptStep:
    """A message that is answered by so many rounds of one call, and then by text."""
    made = [Entry(calls=(envelope(name="free", arguments={"n": n}),)) for n in range(steps)]
    return ScriptStep(user, (*made, Entry(text=f"done {user}")))


@every_wire
async def test_b1_each_mistake_has_its_own_answer(wire: str) -> None:
    """In 273 sessions a bridge failed 329 times: bound tools were sent through it, arguments were
    no JSON, it called itself, the name was missing. All got the same answer, and the model sent up
    to 13 identical calls more (Lexus2016/hermes-agent-evolution#1786)."""
    made = [
        envelope(name="clock", arguments={}),
        envelope(name="free", arguments="not json"),
        envelope(name="call_tool", arguments={"name": "free", "arguments": {}}),
        envelope(arguments={"x": 1}),
    ]
    async with on(wire, says(*made)) as here:
        async with here.open() as session:
            await session.run("go")
            results = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
        assert [each.code for each in results] == ["E6", "E8", "E3", "E2"]
        moves = ["call it directly", "put its parameters in an object", "put the name", "send the"]
        assert all(move in each.text for move, each in zip(moves, results, strict=True))


@every_wire
async def test_b2_a_found_tool_that_is_called_directly_runs(wire: str) -> None:
    """A tool that search had shown was called by its name, and the answer was that it did not exist
    (NousResearch/hermes-agent#84772)."""
    use = says(call("free", "direct"), user="use")
    async with on(wire, says(call("tool_search", query="free")), use) as here:
        async with here.open() as session:
            await session.run("go")
            await session.run("use")
            found, ran = here.exchanges(session.sent[-1])
            assert "free" in [each["name"] for each in json.loads(found.result or "")["tools"]]
            assert (
                ran.result == "free {}" and "does not exist" not in session.sent[-1].body.decode()
            )


@pytest.mark.parametrize("how", ["disabled", "not dispatchable"])
@every_wire
async def test_b3_search_and_dispatch_agree_on_what_may_be_called(wire: str, how: str) -> None:
    """What was left out of the list could still be reached through the bridge (QwenLM/qwen-code,
    in its tool-call module), and the policy was asked only after the answer "call it directly"."""
    options: dict[str, Any] = {"disabled": ["free"]}
    if how == "not dispatchable":
        rule = ToolDispatch(can_dispatch=lambda name, _: name != "free")
        options = {"tool_dispatch": rule}
    calls = [call("tool_search", query="free"), envelope(name="free"), call("free", "direct")]
    async with on(wire, says(*calls)) as here:
        async with here.open(here.agent(**options)) as session:
            await session.run("go")
            searched, *others = here.exchanges(session.sent[-1])
            answer = json.loads(searched.result or "")
            assert "free" not in [each["name"] for each in answer["tools"]]
            assert all("directly" not in (each.result or "") for each in others)
        assert not here.ran.calls


@every_wire
async def test_b5_search_and_call_may_come_in_one_round(wire: str) -> None:
    """A call in the same round as the search for its tool was refused, as not found yet
    (QwenLM/qwen-code#8276)."""
    async with on(wire, says(call("tool_search", query="free"), envelope(name="free"))) as here:
        async with here.open() as session:
            await session.run("go")
        assert here.ran.names == ["free"]


@marked
async def test_b6_every_request_of_a_tool_loop_is_marked_at_its_end(wire: str) -> None:
    """In tool loops, and in sub-agents whose only user message is the task, nothing behind that
    message was marked: nine sub-agents read 339 calls' history in full, for about $40
    (danny-avila/LibreChat#16044, LibreChat-AI/agents#550)."""
    async with on(wire, loop(6)) as here:
        async with here.open() as session:
            await session.run("go")
            assert len(session.sent) == 7
            for each in session.sent:
                last = str(len(json.loads(each.body)["messages"]) - 1)
                assert ("messages", last) in [path[:2] for path in marks(each)]
            only_grow(session.sent)


@marked
async def test_b7_many_results_take_no_more_than_four_marks(wire: str) -> None:
    """Each of several parallel results got a mark of its own; with the fifth, the chat was refused
    for good (oguzbilgic/kern-ai#316)."""
    made = [envelope(name="free", arguments={"n": n}) for n in range(10)]
    async with on(wire, says(*made), says(user="more")) as here:
        async with here.open(here.agent(turn_instructions="Be brief.")) as session:
            await session.run("go")
            await session.run("more")
            assert all(1 <= len(marks(each)) <= 4 for each in session.sent)


async def test_b8_nova_gets_no_mark_on_its_tools() -> None:
    """Nova models refuse a mark in the tool configuration (danny-avila/LibreChat#13838)."""
    async with on("converse", loop(2)) as here:
        agent = here.stage.agent(
            "bedrock:us.amazon.nova-pro-v1:0", tools=here.ran.tools(), tool_changes="dispatch"
        )
        async with here.open(agent, "nova") as session:
            await session.run("go")
            for each in session.sent:
                found = marks(each)
                assert found and not [path for path in found if path[0] == "toolConfig"]


@marked
async def test_b9_one_lifetime_on_all_marks(wire: str) -> None:
    """A mark inside a tool result lost its lifetime on the way, and the next one asked for a longer
    one than the mark before it: refused (Portkey-AI/gateway#1762)."""
    async with on(wire, loop(3)) as here:
        async with here.open(here.agent(ttl="1h")) as session:
            await session.run("go")
            for each in session.sent:
                body = each.body
                assert marks(each)
                assert body.count(b'"ttl":"1h"') == len(marks(each))


@every_wire
async def test_b10_what_was_written_is_read_by_the_next_turn(wire: str) -> None:
    """Marks on the two newest user messages wrote the conversation again each turn, and little of
    it was ever read (LibreChat-AI/agents#245)."""
    turns = [loop(2, f"turn {n}") for n in range(5)]
    async with on(wire, *turns) as here:
        async with here.open(here.agent(instructions=ENOUGH)) as session:
            for n in range(5):
                await session.run(f"turn {n}")
            # The judge looks at each of them when the stage is left; none read less than it could.
            read = [each.usage.cache_read or 0 for each in session.sent]
            assert len(read) == 15 and read[-1] > read[2] > 0
            only_grow(session.sent)


@every_wire
async def test_b11_the_turns_text_is_never_part_of_the_static_text(wire: str) -> None:
    """Static and per-turn instructions were glued into one system message with the break behind
    both, so every turn broke it (LibreChat-AI/agents#546, strands-agents/harness-sdk#3677, which
    is B22)."""
    async with on(wire, loop(1, "one"), loop(1, "two"), loop(1, "three")) as here:
        async with here.open() as session:
            for text in ("one", "two", "three"):
                session.turn_instructions = f"It is turn {text}."
                await session.run(text)
            # The judge sees each request read all that stands in front of the moved text.
            assert [each.breaks for each in session.sent] == [()] * 6
            same_tools(session.sent)
            for each in session.sent:
                body = json.loads(each.body)
                static = [body.get(k) for k in ("system", "instructions", "systemInstruction")]
                assert "It is turn" not in json.dumps(static)


@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_b12_the_cache_key_knows_no_servers(wire: str) -> None:
    """The key was a digest of all tools, so a server that came or went moved the conversation to
    another cache (danny-avila/LibreChat#15959)."""
    async with on(wire) as here:
        spec, _ = server("files", "read_file")
        async with here.open(here.agent(mcp_servers=[spec])) as session:
            await session.run("one")
            await session.tools.enable("files")
            await session.run("two")
            keys = {json.loads(each.body)["prompt_cache_key"] for each in session.sent}
            assert len(keys) == 1


@every_wire
async def test_b13_old_calls_stay_calls(wire: str) -> None:
    """Calls of tools that were gone were turned into text, "Tool: name, output", and the model
    began to write such text itself (danny-avila/LibreChat#14623)."""
    async with on(wire, says(call("read_file")), says(user="two")) as here:
        spec, _ = server("files", "read_file")
        async with here.open(here.agent(mcp_servers=[spec])) as session:
            await session.tools.enable("files")
            await session.run("go")
            before = here.exchanges(session.sent[-1])
            await session.tools.disable("files")
            await session.run("two")
            assert here.exchanges(session.sent[-1]) == before and len(before) == 1


@every_wire
async def test_b14_a_dispatched_call_starts_when_all_of_it_is_there(wire: str) -> None:
    """Calls were started while their arguments still streamed, with other arguments than they
    ended with, and the model tried again for ever (danny-avila/LibreChat#14371,
    LibreChat-AI/agents#368, LibreChat-AI/agents#281)."""
    async with on(wire, says(envelope(name="free", arguments={"n": 1}))) as here:
        async with here.open() as session:
            await session.run("go")
            events = session.log.events
            (started,) = [e.seq for e in events if isinstance(e.data, ToolCall)]
            answered = [e.seq for e in events if isinstance(e.data, AssistantMessage)]
            assert started > answered[0]
        assert here.ran.calls == [("free", {"n": 1})]


@every_wire
async def test_b15_hooks_tool_and_log_know_a_call_by_one_id(wire: str) -> None:
    """What decided about an early start looked hooks up under another id than what ran the tool, so
    hooks were passed over (LibreChat-AI/agents#299)."""
    ids: list[str] = []

    @tool(defer_loading=True)
    async def mine(context: ToolContext) -> str:
        """Say it."""
        ids.append(context.call_id)
        return "said"

    hook = Hook(
        "mine",
        before=lambda c: ids.append(c.id),
        after=lambda c, _: ids.append(c.id),
    )
    async with on(wire, says(envelope(name="mine", arguments={}))) as here:
        tools = [here.ran.tool(schema("clock"), defer=False), mine]
        async with here.open(here.agent(tools=tools, hooks=[hook])) as session:
            await session.run("go")
            (result,) = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
        assert ids == [result.call_id] * 3


@every_wire
async def test_b16_old_results_are_the_same_bytes_whatever_follows(wire: str) -> None:
    """Old results were faded by the size of today's context, so they changed under the cache: 18.7
    million tokens written for 35.8 million read in a day (danny-avila/LibreChat#15499)."""
    long = "x" * 40_000
    spec, files = server("files", "read_file")
    files.tools[0] = canned("read_file", result=long)
    steps = [says(call("read_file"), user=f"turn {n}") for n in range(4)]
    async with on(wire, *steps) as here:
        async with here.open(here.agent(mcp_servers=[spec])) as session:
            await session.tools.enable("files")
            for n in range(4):
                await session.run(f"turn {n}")
            only_grow(session.sent)


@every_wire
async def test_b18_a_summary_is_asked_with_the_same_head_and_history(wire: str) -> None:
    """The summary was asked for with other tools and another system text: a full miss on the
    largest prompt there is (R-Dson/pi#40). On Bedrock, a history with calls and no tool
    configuration is refused (pydantic/pydantic-ai#5929, which is B17)."""
    step = ScriptStep("go", (*loop(3).entries,), summary="They tried it three times.")
    async with on(wire, step, says(user="after")) as here:
        async with here.open() as session:
            await session.run("go")
            await session.compact()
            *turns, asked = session.sent
            assert asked.purpose == "compaction" and "call_tool" in declared(asked)
            only_grow([*turns, asked])
            await session.run("after")
            same_tools(session.sent)
        assert here.stage.refused() == []


@every_wire
async def test_b19_a_list_that_is_empty_for_a_moment_is_no_removal(wire: str) -> None:
    """While a server was looked at anew its list was empty for a moment, and its tools went and
    came (danny-avila/LibreChat#14798); elsewhere a changed list was not looked at at all
    (danny-avila/LibreChat#7117)."""
    async with on(wire) as here:
        spec, files = server("files", "read_file")
        async with here.open(here.agent(mcp_servers=[spec])) as session:
            await session.tools.enable("files")
            await session.run("one")
            kept = files.tools[0]

            async def flicker() -> None:
                await files.remove("read_file")
                await files.add(kept)
                await files.add(canned("write_file"))

            await changed(here.stage.pool, spec, flicker())
            await session.run("two")
            told = [e.data for e in session.log.events if isinstance(e.data, DeveloperMessage)]
            names = [[block.tool_name for block in each.content] for each in told]  # type: ignore[union-attr]
            assert names == [["files__read_file"], ["files__write_file"]]
            only_grow(session.sent)


@every_wire
async def test_b20_an_announced_tool_needs_no_search(wire: str) -> None:
    """Many models never call the search, and so never learned of a tool
    (zeroclaw-labs/zeroclaw#6874)."""
    async with on(wire, says(), says(call("read_file"), user="use")) as here:
        spec, files = server("files", "read_file")
        async with here.open(here.agent(mcp_servers=[spec])) as session:
            await session.run("go")
            await session.tools.enable("files")
            await session.run("use")
            body = session.sent[-1].body.decode()
            assert "files__read_file" in body and "Does it." in body and "integer" in body
        assert files.calls == [("read_file", {})]


@every_wire
async def test_b21_a_schema_that_is_a_union_works_through_the_dispatcher(wire: str) -> None:
    """Providers refuse `oneOf`, `anyOf` or `allOf` at the top of a tool's parameters
    (Hmbown/Codewhale#4329)."""
    union = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    odd = schema("odd", {"a": {"type": "string"}, "b": {"type": "integer"}}, **union)
    made = [envelope(name="odd", arguments=a) for a in ({"b": "3"}, {"a": "x", "b": 3}, {})]
    async with on(wire, says(*made)) as here:
        tools = [here.ran.tool(schema("clock"), defer=False), here.ran.tool(odd)]
        async with here.open(here.agent(tools=tools)) as session:
            await session.run("go")
            told = here.exchanges(session.sent[-1])
        assert here.ran.calls == [("odd", {"b": 3})]
        assert ["do not fit" in (each.result or "") for each in told] == [False, True, True]
    for fixed in (CALL_TOOL, CALL_TOOL_TEXT):
        assert not {"oneOf", "anyOf", "allOf"} & json.loads(bytes(fixed.parameters)).keys()


@every_wire
async def test_b23_the_transcript_is_read_from_the_cache(wire: str) -> None:
    """The only mark stood at the end of the system text: the transcript was never cached
    (janeapp/riffer#431)."""
    async with on(wire, loop(1, "one"), loop(8, "two")) as here:
        async with here.open(here.agent(instructions=ENOUGH)) as session:
            await session.run("one")
            await session.run("two")
            first, last = session.sent[0], session.sent[-1]
            assert (last.usage.cache_read or 0) > (first.usage.prompt or 0)


@marked
async def test_b24_marks_are_in_the_bytes_that_leave(wire: str) -> None:
    """A translator between the planner and the wire dropped the marks, while all tests of the
    planner passed (SenteLabsAI/OpenExecutive#146)."""
    async with on(wire, loop(1)) as here:
        async with here.open() as session:
            await session.run("go")
        word = {"messages": b'"cache_control"', "converse": b'"cachePoint"'}[wire]
        captured = [each.body for each in here.stage.lab.captures]
        assert captured == [each.body for each in here.stage.sent] and len(captured) == 2
        assert all(word in body for body in captured)


def test_b4_no_pointer_to_a_search_that_is_not_bound() -> None:
    """A refusal told the model to search, while the search was not there (QwenLM/qwen-code, in its
    tool-call module)."""
    made = Call("c1", "call_tool", '{"name":"nope","arguments":{}}')
    for bound in (True, False):
        found = resolve_dispatched_tool_call(made, registry={}, bound=(), search_bound=bound)
        assert isinstance(found, Refused) and ("tool_search" in found.message) == bound


def test_the_readers_of_these_reports_can_fail() -> None:
    """What they rest on sees a call without its result."""
    body = {"input": [{"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"}]}
    with pytest.raises(AssertionError):
        exchanges("responses", body)
