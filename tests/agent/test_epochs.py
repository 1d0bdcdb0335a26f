"""What ends an epoch, what is declared for it, and what the next request still knows of it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    DEEPSEEK,
    LONG,
    body,
    breaks,
    data,
    fn,
    names,
    refusal,
    results,
    server,
    stage,
    storing,
    thinking,
)

from addendum.agent.context.sent import RENDERING
from addendum.agent.setup import Settings
from addendum.cli.why import judge_log
from addendum.errors import AddendumError, ConfigurationError
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import CacheBreak, RequestContext, RequestHeader, RouteDowngrade
from addendum.stores import leases

pytestmark = pytest.mark.anyio

INLINE = refusal("messages.3: tool_definition is not supported")
NO_CHANGES = refusal("messages.3: tool_addition tool_definition tool_reference are not supported")


async def test_settings_and_messages_that_change_together_end_old_reasoning() -> None:
    async with stage(thinking("one", "two", "three", "four")) as here:
        agent = here.agent(CLAUDE, settings=Settings(effort="low"))
        async with here.open(agent) as session:
            await session.run("one")
            session.instructions = "B"
            await session.run("two")
            session.start_series()
            session.instructions = LONG + "C"
            agent.setup.settings = Settings(effort="high")
            await session.run("three")
            (found,) = [each for each in data(session) if isinstance(each, CacheBreak)]
            assert (found.reason, found.at, found.drops_reasoning) == (
                "settings changed",
                "settings",
                True,
            )
            await session.run("four")
            # Of three answers with reasoning only the last one keeps it.
            assert session.sent[-1].body.count(b'"type":"thinking"') == 1
        assert here.refused() == []
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_a_downgrade_ends_old_reasoning_and_says_so() -> None:
    async with stage(thinking("one", "two", "three", "four")) as here:
        agent = here.agent(CLAUDE, mcp_servers=[server()], settings=Settings(effort="high"))
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run("two")
            here.lab.fail_next("anthropic", status=400, body=INLINE)
            await session.run("three")
            await session.run("four")
            assert breaks(session) == [("downgrade", "settings")]
            assert [each.context.definitions for each in session.sent[-2:]] == ["by-reference"] * 2
            assert session.sent[-1].body.count(b'"type":"thinking"') == 1
        assert here.refused() == ["the lab was asked to fail with 400"]
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_the_answer_to_a_downgraded_request_is_read_in_its_new_form() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            here.lab.fail_next("anthropic", status=400, body=NO_CHANGES)
            await session.run('/call call_tool {"name":"github__t0","arguments":{"q":"x"}}')
            assert [(each.name, each.text) for each in results(session)] == [("github__t0", "ok")]
            assert names(session.sent[-1]) == ["web", "tool_search", "call_tool"]
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_a_downgrade_is_known_to_new_sessions_until_it_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as here:
        monkeypatch.setattr(leases, "now", lambda: int(here.clock.now() * 1000))
        agent = here.agent(CLAUDE, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            here.lab.fail_next("anthropic", status=400, body=NO_CHANGES)
            await session.run("two")
        for name, days, projection in (("b", 6, "dispatch"), ("c", 2, "in-history")):
            here.clock.advance(days * 86_400)
            async with here.open(agent, name) as session:
                await session.run("one")
                assert session.sent[-1].context.projection == projection
                assert not [each for each in data(session) if isinstance(each, RouteDowngrade)]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("route", [CLAUDE, CHAT])
async def test_a_break_declared_for_a_failed_request_counts_for_the_next(
    route: str, restart: bool
) -> None:
    async with stage() as here:
        agent = here.agent(route)
        async with here.open(agent) as session:
            await session.run("one " + "y" * 6_000)
            await session.run("two " + "z" * 6_000)
            await session.compact("summary " * 500)
            here.lab.fail_next(route.split(":")[0], status=500)
            with pytest.raises(AddendumError):
                await session.run("three")
            assert breaks(session) == [("compaction", "messages")]
            if not restart:
                await session.run("four")
                await session.run("five")
        if restart:
            async with here.open(agent) as session:
                await session.run("four")
                await session.run("five")
        reasons = [[each.reason for each in sent.breaks] for sent in here.sent[-3:]]
        assert reasons == [["compaction"], ["compaction"], []]
        report = here.judged(route)
        assert report.totals.misses == 1
        assert report.requests[2].miss is not None
        assert report.requests[2].miss.declared


async def test_the_first_tools_of_an_empty_head_are_a_declared_new_head() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, tools=[])) as session:
            await session.run("one")
            await session.tools.add(fn("web"))
            await session.run("two")
            await session.tools.add(fn("more"))
            await session.run("three")
            assert breaks(session) == [("head changed", "tools")]
            assert "tools" not in body(session.sent[0])
            assert names(session.sent[-1]) == ["web", "deferred_tools_placeholder"]
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


@pytest.mark.parametrize("route", [CLAUDE, CLAUDE + "+by-reference", CHAT, DEEPSEEK])
async def test_a_new_head_takes_a_change_of_the_same_step_with_it(route: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(route, mcp_servers=[server()])) as session:
            await session.run("one")
            await session.tools.enable("github")
            session.rehead()
            await session.run("two")
            await session.run("three")
            # OpenAI's key names the head: another one stands in front of everything.
            assert breaks(session) == [("head changed", "settings" if route == CHAT else "tools")]
            headers = [each for each in data(session) if isinstance(each, RequestHeader)]
            assert [(each.reason, each.head, each.new_series) for each in headers] == [
                ("initial", False, False),
                ("change", True, True),
            ]
            assert names(session.sent[-1])[:3] in (
                ["web", "github__t0", "github__t1"],
                ["web", "tool_search", "github__t0"],
            )
            # What is in the head is not told once more.
            assert b"tool_addition" not in session.sent[-1].body
            assert b'"<tool_update>' not in session.sent[-1].body
        assert here.judged(route.split("+")[0]).totals.undeclared_misses == 0


async def test_an_epoch_of_an_unknown_rendering_ends_once() -> None:
    def later(event: dict[str, Any]) -> None:
        if event["type"] == "request/context":
            event["rendering"] = 7

    async with stage() as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run("one")
        stored = storing(await here.store.read("s"), later)
        lease = await here.store.acquire("t")
        await here.store.append(lease, 0, stored)
        await here.store.release(lease)
        for texts_of in (("two", "three"), ("four",)):
            async with here.open(agent, "t") as session:
                for text in texts_of:
                    await session.run(text)
                assert breaks(session) == [("rendering changed", "tools")]
                contexts = [each for each in data(session) if isinstance(each, RequestContext)]
                assert [each.rendering for each in contexts] == [7, RENDERING]


@pytest.mark.parametrize(("later", "declared"), [(190.0, []), (250.0, ["lifetime passed"])])
async def test_a_lifetime_runs_from_the_start_of_a_request(
    later: float, declared: list[str]
) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, ttl="5m")) as session:
            await session.run("one")
            here.lab.stall_next("anthropic", after_events=3)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.run, "two")
                await here.lab.until_stalled()
                here.clock.advance(100)
                here.lab.release()
            here.clock.advance(later)
            await session.run("three")
            assert [reason for reason, _ in breaks(session)] == declared
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


async def test_stripped_reasoning_is_declared_where_the_model_strips_it() -> None:
    route = "anthropic:claude-haiku-4-5"
    first = "one " + "p " * 4_000
    calls = (ScriptCall("web", {"q0": "a"}),)
    script = Script(
        (
            ScriptStep(
                first,
                (
                    Entry(thinking="t " * 50, calls=calls),
                    Entry(text="r", thinking="u " * 50),
                ),
            ),
            ScriptStep("two", (Entry(text="ok"),)),
            ScriptStep("three", (Entry(text="ok"),)),
        )
    )
    async with stage(script) as here:
        agent = here.agent(route, instructions=LONG * 5, settings=Settings(effort="low"))
        async with here.open(agent) as session:
            for text in (first, "two", "three"):
                await session.run(text)
            assert breaks(session) == [("reasoning stripped", "messages")]
        misses = [row.miss for row in here.judged(route).requests if row.miss]
        assert [(miss.declared, miss.reason) for miss in misses] == [(True, "reasoning stripped")]


async def test_a_weaker_form_that_is_asked_for_begins_at_once_and_lasts() -> None:
    async with stage() as here:
        options: dict[str, Any] = {"mcp_servers": [server()]}
        async with here.open(here.agent(CLAUDE, **options)) as session:
            await session.run("one")
            session.use(here.agent(CLAUDE + "+by-reference").setup.route)
            await session.tools.enable("github")
            await session.run("two")
            assert session.sent[-1].context.definitions == "by-reference"
            session.use(here.agent(CLAUDE + "+dispatch").setup.route)
            await session.run("three")
            assert session.sent[-1].context.projection == "dispatch"
        async with here.open(here.agent(CLAUDE, **options)) as session:
            await session.run("four")
            assert session.sent[-1].context.projection == "dispatch"
        async with here.open(here.agent(CLAUDE + "+by-reference", **options)) as session:
            await session.run("five")
            assert session.sent[-1].context.definitions == "by-reference"


@pytest.mark.parametrize("first", [True, False])
async def test_caching_is_the_agents_say_on_a_session_that_was_used(first: bool) -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, caching=first)) as session:
            await session.run("one")
        async with here.open(here.agent(CLAUDE, caching=not first)) as session:
            await session.run("two")
            assert (b"cache_control" in session.sent[-1].body) is not first
            assert breaks(session)[0][0] == "settings changed"


@pytest.mark.parametrize(
    "route", [CLAUDE, "anthropic:claude-sonnet-4-6", CHAT, "openai:gpt-6.1-sol"]
)
async def test_caching_that_is_switched_off_is_a_declared_break(route: str) -> None:
    async with stage() as here:
        async with here.open(here.agent(route)) as session:
            await session.run("one")
            await session.run("two")
        async with here.open(here.agent(route, caching=False)) as session:
            await session.run("three")
            await session.run("four")
            assert [reason for reason, _ in breaks(session)] == ["settings changed"]
        async with here.open(here.agent(route)) as session:
            await session.run("five")
            await session.run("six")
            misses = judge_log(session.log).misses
            assert misses and {each.verdict for each in misses} == {"declared"}


async def test_servers_that_come_to_a_rebinding_session_end_the_rebinding() -> None:
    async with stage() as here:
        async with here.open(here.agent(CHAT)) as session:
            await session.run("one")
            assert session.sent[-1].context.projection == "rebind"
        async with here.open(here.agent(CHAT, mcp_servers=[server()])) as session:
            for turn in range(2):
                await session.tools.enable("github")
                await session.run(f"on {turn}")
                await session.tools.disable("github")
                await session.run(f"off {turn}")
            assert session.sent[-1].context.projection == "dispatch"
            assert breaks(session) == [("head changed", "tools")]
        assert here.judged(CHAT).totals.undeclared_misses == 0


async def test_a_compaction_is_asked_for_with_the_settings_of_the_last_request() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE)
        async with here.open(agent) as session:
            await session.run("one")
            agent.setup.settings = Settings(effort="high")
            await session.compact()
            assert b'"effort"' not in session.sent[-1].body
            assert breaks(session) == []
            await session.run("two")
            assert b'"effort":"high"' in session.sent[-1].body
        assert here.judged(CLAUDE).totals.undeclared_misses == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tail": "scoped"}, "has no scoped instructions"),
        ({"tail": "nowhere"}, r"Agent\(tail='nowhere'\): must be .*'scoped'"),
        ({"tool_changes": "native"}, "cannot be told of tool changes natively"),
        ({"tool_changes": "x"}, r"Agent\(tool_changes='x'\): must be 'auto', "),
    ],
)
async def test_what_cannot_be_set_up_is_told_at_once(options: dict[str, str], says: str) -> None:
    async with stage() as here:
        with pytest.raises(ConfigurationError, match=says):
            here.agent(CHAT, **options)
        with pytest.raises(ConfigurationError, match="has no cache lifetime '1h'"):
            here.agent("bedrock:amazon.nova-pro-v1:0", ttl="1h")


async def test_names_of_another_form_of_calls_stay_known_to_the_judge() -> None:
    async with stage() as here:
        agent = here.agent(CHAT, mcp_servers=[server()])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.enable("github")
            await session.run('/call tool_search {"query":"t0"}')
            await session.run('/call call_tool {"nam":"t0"}')
            await session.run('/call call_tool {"name":"nowhere","arguments":{}}')
            session.use(here.agent(CLAUDE).setup.route)
            await session.run("three")
            called = [
                block["name"]
                for message in body(session.sent[-1])["messages"]
                for block in message["content"]
                if block["type"] == "tool_use"
            ]
            assert called == ["tool_search", "call_tool", "nowhere"]
            assert "call_tool" not in names(session.sent[-1])
        here.judged(CLAUDE)


@pytest.mark.parametrize(
    "route", [CLAUDE, CHAT, DEEPSEEK, "openai:gpt-5.5", "gemini:gemini-4-argon"]
)
async def test_what_is_no_part_of_a_prefix_breaks_none(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route)
        async with here.open(agent) as session:
            await session.run("one " + "x" * 8_000)
            for settings in (
                Settings(max_tokens=900),
                Settings(max_tokens=900, temperature=0.5),
                Settings(stop=() if route.startswith("openai:") else ("END",)),
            ):
                agent.setup.settings = settings
                await session.run(f"with {settings}")
            assert breaks(session) == []
            agent.setup.settings = Settings(effort="low")
            await session.run("another effort")
            assert breaks(session) == [("settings changed", "settings")]
        assert here.refused() == []
        assert here.judged(route).totals.undeclared_misses == 0


@pytest.mark.parametrize(
    ("route", "found"),
    [
        (CHAT, [("head changed", "settings")]),
        ("openai:gpt-5.5", [("head changed", "settings")]),
        ("mistral:mistral-large-4", [("head changed", "settings")]),
        (CLAUDE, []),
        (DEEPSEEK, []),
    ],
)
async def test_a_new_head_of_the_same_tools_is_a_break_where_a_key_names_it(
    route: str, found: list[tuple[str, str]]
) -> None:
    async with stage() as here:
        async with here.open(here.agent(route, tool_changes="rebind")) as session:
            await session.run("one " + "x" * 8_000)
            await session.tools.add(fn("late"))
            await session.run("two")
            before = breaks(session)
            session.rehead()
            await session.run("three")
            assert breaks(session)[len(before) :] == found
        assert here.judged(route).totals.undeclared_misses == 0


async def test_a_key_that_changes_with_the_head_stands_in_front_of_the_tools() -> None:
    """Kimi keeps tools in front of a change, but nothing under another key."""
    route = "moonshot:kimi-k3"
    async with stage() as here:
        agent = here.agent(route, tools=[fn(f"tool{number}") for number in range(20)])
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            session.rehead()
            await session.run("two")
            assert breaks(session) == [("head changed", "settings")]
        assert here.judged(route).totals.undeclared_misses == 0
