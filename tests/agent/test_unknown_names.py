"""Names that no tool has: an error where nothing can bring it, a notice once it is known."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agent.stage import CHAT, CLAUDE, Stage, fn, server, stage

from addendum import Agent, Approval, Hook, Policy, subagent
from addendum.errors import ConfigurationError
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio


def nothing(*_: Any) -> None:
    return None


def naming(name: str) -> dict[str, dict[str, Any]]:
    """Every place that a name of a tool can be written in."""
    return {
        "disabled": {"disabled": [name]},
        "policy": {"approval": Approval((Policy("deny", name),))},
        "hook": {"hooks": [Hook(name, before=nothing)]},
        "hooks": {"hooks": [Hook(("web", name), after=nothing)]},
    }


PLACES = list(naming("x"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("wbe", "'web'"),
        ("WEB", "'web'"),
        ("webb", "'web'"),
        ("web ", "'web'"),
        ("zzz", "there are: web"),
    ],
)
async def test_a_name_that_nothing_can_bring_is_an_error(place: str, name: str, near: str) -> None:
    async with stage() as here:
        # A server makes room for tools of all names, but not for a slip.
        for more in ({}, {"mcp_servers": [server()]}):
            if more and name == "zzz":
                here.agent(CLAUDE, **naming(name)[place], **more)
                continue
            with pytest.raises(ConfigurationError) as caught:
                here.agent(CLAUDE, **naming(name)[place], **more)
            assert repr(name) in str(caught.value) and near in str(caught.value)
        # Whoever adds tools later says so.
        here.agent(CLAUDE, **naming(name)[place], tool_dispatch=True)


async def test_a_server_that_is_not_configured_is_an_error() -> None:
    async with stage() as here:
        for name, near in (("gihub", "'github'"), ("GITHUB", "'github'"), ("zzz", "github")):
            with pytest.raises(ConfigurationError, match=near):
                rules = Approval((Policy("deny", server=name),))
                here.agent(CLAUDE, mcp_servers=[server()], approval=rules)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "name", ["web", "w*", "*", "[wx]eb", "tool_search", "github__t0", "github__*"]
)
async def test_names_that_mean_something_are_not_told(place: str, name: str) -> None:
    async with stage() as here:
        if place == "disabled" and {*name} & {*"*["}:
            # There a name is a name: a pattern would switch nothing off.
            with pytest.raises(ConfigurationError, match="no tool has this name"):
                here.agent(CLAUDE, mcp_servers=[server()], **naming(name)[place])
            return
        agent = here.agent(CLAUDE, mcp_servers=[server()], **naming(name)[place])
        async with here.open(agent) as session:
            await session.tools.enable("github")
            assert (await session.run("one")).notices == ()


@pytest.mark.parametrize("place", [each for each in PLACES if each != "disabled"])
@pytest.mark.parametrize(
    "name", ["github__t9", "github__T0", "github__x*", "gith*__x", "zz*", "zzz"]
)
async def test_what_a_server_could_have_brought_is_told_when_it_has_listed(
    place: str, name: str
) -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[server()], **naming(name)[place])
        first: list[str] = []
        async with here.open(agent) as session:
            first += (await session.run("one")).notices
            assert bool(first) == name.startswith("zz")
            await session.tools.enable("github")
            first += (await session.run("two")).notices
            (line,) = first
            assert name in line and line == " ".join(line.split())
            assert (await session.run("three")).notices == ()
        # Whoever opens it again was told by the log's turns.
        async with here.open(agent) as session:
            assert (await session.run("four")).notices == ()


async def test_a_disabled_name_that_a_server_does_not_bring_is_told() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[server()], disabled=["github__t9", "github__t0"])
        async with here.open(agent) as session:
            assert (await session.run("one")).notices == ()
            await session.tools.enable("github")
            (line,) = (await session.run("two")).notices
            assert "github__t9" in line


async def test_a_session_that_is_opened_again_in_front_of_each_turn_tells_the_same() -> None:
    async def told(reopened: bool) -> list[tuple[str, ...]]:
        async with stage() as here:
            rules = Approval((Policy("deny", "github__t9"), Policy("deny", "zz*")))
            agent = here.agent(CHAT, mcp_servers=[server()], approval=rules)
            found: list[tuple[str, ...]] = []
            for batch in ((0,), (1,), (2,), (3,)) if reopened else ((0, 1, 2, 3),):
                async with here.open(agent) as session:
                    for turn in batch:
                        if turn == 1:
                            await session.tools.enable("github")
                        found.append((await session.run(f"turn {turn}")).notices)
            return found

    kept = await told(False)
    assert kept == await told(True)
    assert [len(each) for each in kept] == [1, 1, 0, 0]


async def test_a_rule_for_the_dispatcher_is_told_to_fit_nothing() -> None:
    async with stage() as here:
        rules = Approval((Policy("deny", "call_tool"),), default="allow")
        async with here.open(here.agent(CHAT, tool_dispatch=True, approval=rules)) as session:
            (line,) = (await session.run("one")).notices
            assert "call_tool" in line


async def test_refusing_a_name_that_nothing_has_is_an_error() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE, mcp_servers=[server()])) as session:
            await session.run("one")
            await session.tools.add(fn("late"))
            before = len(session.log)
            for name in ("wbe", "lat", "gihub__t0", "zzz"):
                with pytest.raises(ConfigurationError, match=name):
                    await session.tools.refuse("web", name)
            assert len(session.log) == before
            for name in ("web", "late", "github__t0", "github__new", "tool_search"):
                await session.tools.refuse(name)
            await session.tools.refuse()
            assert session.disabled == ()


def child(here: Stage, **more: Any) -> Agent:
    return here.agent(CLAUDE, **more)


async def test_what_a_subagent_excludes_is_looked_for_in_all_its_children() -> None:
    async with stage() as here:
        inner = child(here, tools=[fn("write")])
        outer = child(here, tools=[fn("read"), subagent(inner, name="inner")])
        for name in ("read", "write", "inner", "w*", "nothing*"):
            subagent(outer, name="helper", exclude=[name])
        for name, near in (("wirte", "'write'"), ("raed", "'read'")):
            with pytest.raises(ConfigurationError, match=near):
                subagent(outer, name="helper", exclude=[name])
            with pytest.raises(ConfigurationError, match=near):
                async with outer.open("s", store=here.store, exclude=[name]):
                    pass
        async with outer.open("s", store=here.store, exclude=["write"]) as session:
            assert (await session.run("one")).notices == ()


async def test_a_server_with_an_odd_name_may_bring_what_begins_like_its_tools() -> None:
    made = in_process("a b", [CannedTool("look", "Look.", {"type": "object"}, "ok")])
    spec = ServerSpec(name="a b", server=made)
    async with stage() as here:
        agent = here.agent(CLAUDE, mcp_servers=[spec], disabled=["a_b__look_1234"])
        async with here.open(agent) as session:
            assert (await session.run("one")).notices == ()
            await session.tools.enable("a b")
            (line,) = (await session.run("two")).notices
            assert "a_b__look_1234" in line and "did you mean 'a_b__look" in line
