"""Tools that are refused, redefined and restored in a session that is under way; and forks."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from tests.agent.stage import CHAT, CLAUDE, breaks, data, fn, names, results, stage, texts

from addendum import encoding
from addendum.agent.calls.approval import definition
from addendum.agent.calls.search import searched
from addendum.agent.results import Notice
from addendum.agent.session import Session, runtime_of
from addendum.agent.setup import ToolDispatch
from addendum.lab.mcp_servers import CannedServer, CannedTool, in_process
from addendum.log.events import RequestHeader
from addendum.log.values import ToolSchema
from addendum.tools.mcp.values import ServerSpec

pytestmark = pytest.mark.anyio


async def test_a_tool_that_the_agent_disables_later_is_refused_in_an_existing_session() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
        async with here.open(here.agent(CLAUDE, disabled=["web"])) as session:
            await session.run('/call web {"q0":"x"}')
            assert [(each.name, each.code) for each in results(session)] == [("web", "E5")]
            assert breaks(session) == []
            assert session.log.disabled == ("web",)
        assert here.judged(CLAUDE).totals.misses == 0


async def test_a_bound_tool_that_is_what_it_was_again_is_announced_as_restored() -> None:
    async with stage() as here:
        async with here.open(here.agent(CHAT, tool_dispatch=True)) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.run("two")
            await session.tools.add(fn("web", 0))
            await session.run("three")
            said = [text for _, text in texts(session.sent[-1]) if text.startswith("<tool_update>")]
            assert said[0].startswith('<tool_update>{"changed":[')
            assert said[1:] == ['<tool_update>{"restored":["web"]}</tool_update>']
            await session.run('/call web {"q0":"x"}')
            await session.run('/call call_tool {"name":"web","arguments":{"q0":"x"}}')
            assert [each.code for each in results(session)] == [None, "E6"]
            assert results(session)[0].text == "web v0 result"
        assert here.judged(CHAT).totals.misses == 0


async def test_search_shows_what_the_dispatcher_reaches_and_nothing_else() -> None:
    def allowed(name: str, schema: ToolSchema) -> bool:
        return name != "secret"

    async with stage() as here:
        agent = here.agent(
            CHAT,
            tools=[fn("web"), fn("secret", deferred=True), fn("rare", deferred=True)],
            tool_dispatch=ToolDispatch(can_dispatch=allowed),
        )
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.tools.refuse("rare")
            await session.run("two")
            found = encoding.decode(searched(runtime_of(session), '{"query":"tool"}'))
            assert [tool["name"] for tool in found["tools"]] == ["web"]
            for name, code in (("secret", "E7"), ("rare", "E5"), ("web", None)):
                await session.run(f'/call call_tool {{"name":"{name}","arguments":{{}}}}')
                assert results(session)[-1].code == code
            assert results(session)[-1].text == "web v1 result"


@pytest.mark.parametrize("route", [CHAT, CLAUDE])
async def test_a_function_replaced_by_hand_is_the_agents_own_when_reopened(route: str) -> None:
    async with stage() as here:
        agent = here.agent(route, tool_dispatch=True)
        async with here.open(agent) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.run("two")
        async with here.open(agent) as session:
            await session.run('/call web {"q0":"x"}')
            assert results(session)[-1].text == "web v0 result"
            headers = [each.header for each in data(session) if isinstance(each, RequestHeader)]
            assert ["version 1" in header.tools[0].description for header in headers] == [
                False,
                True,
                False,
            ]
            assert breaks(session) == []
        assert here.judged(route).totals.misses == 0


async def test_a_fork_carries_texts_and_tools_that_were_added_by_hand() -> None:
    async with stage() as here:
        agent = here.agent(CLAUDE, conversation_instructions="A", turn_instructions="T")
        async with here.open(agent) as session:
            session.instructions = "Mine. " * 300
            session.conversation_instructions = "B. " * 50
            session.turn_instructions = None
            await session.run("one")
            await session.tools.add(fn("mine"))
            await session.run("two")
            async with session.fork("child") as child:
                await child.run("/call mine {}")
                assert breaks(child) == []
                assert [each.text for each in results(child)] == ["mine v0 result"]
                assert child.sent[0].body.startswith(session.sent[-1].body[:2_000])
                assert child.sent[0].usage.cache_read
                assert names(child.sent[0]) == names(session.sent[-1])
                assert child.turn_instructions is None
            # The parent goes its own way.
            await session.run("three")
            assert breaks(session) == []
            assert results(session) == []


def _changing() -> tuple[CannedServer, ServerSpec]:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    made = in_process("files", [CannedTool("read", "Read a file.", schema, "text")])
    return made, ServerSpec(name="files", server=made)


async def _redefine(made: CannedServer) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    await made.add(CannedTool("read", "Read a file by its path.", schema, "text"))


async def _until_listed(session: Session, made: CannedServer) -> None:
    """Wait until the session knows of the server's newest list."""
    with anyio.fail_after(10):
        before = session.registry.state("files").revision
        await _redefine(made)
        while session.registry.state("files").revision == before:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("route", [CHAT, CLAUDE])
async def test_d12_keep_goes_on_with_the_definition_that_the_session_has(route: str) -> None:
    made, spec = _changing()
    async with stage() as here:
        agent = here.agent(route, mcp_servers=[spec], on_redefinition="keep")
        async with here.open(agent) as session:
            await session.tools.enable("files")
            await session.run("one")
            await _until_listed(session, made)
            told = [each async for each in session.stream("two")]
            said = [each.text for each in told if isinstance(each, Notice)]
            assert len(said) == 1 and "goes on with the old definition" in said[0]
            # The model is told nothing, and the old definition is what calls are checked against.
            assert len([each for each in data(session) if isinstance(each, RequestHeader)]) == 2
            prefix = "" if route == CLAUDE else 'call_tool {"name":"files__read","arguments":'
            for arguments, code in (('{"q":"x"}', None), ('{"path":"x"}', "E9")):
                ending = "}" if prefix else ""
                name = prefix or "files__read "
                await session.run(f"/call {name}{arguments}{ending}")
                assert results(session)[-1].code == code
            assert made.calls == [("read", {"q": "x"})]
            (found,) = session.tools.redefined()
            assert (found.name, found.action, found.old != found.new) == (
                "files__read",
                "keep",
                True,
            )
            assert found.tool is not None and b"path" in bytes(found.tool.parameters)
        async with here.open(agent) as session:
            # The call dials the server, which lists what it has by now.
            ending = "}" if prefix else ""
            await session.run(f'/call {prefix or "files__read "}{{"q":"y"}}{ending}')
            assert results(session)[-1].code is None
            assert session.registry.state("files").revision
            await session.run("four")
            assert len(session.tools.redefined()) == 1
            assert b"by its path" not in session.sent[-1].body
        assert here.judged(route).totals.misses == 0
        # Another conversation has no old definition to keep.
        async with here.open(agent, "other") as session:
            await session.tools.enable("files")
            await session.run("one")
            assert b"by its path" in session.sent[-1].body
            assert session.tools.redefined() == ()


async def test_d12_the_log_names_the_old_and_the_new_definition() -> None:
    async with stage() as here:
        async with here.open(here.agent(CLAUDE)) as session:
            await session.run("one")
            await session.tools.add(fn("web", 1))
            await session.run("two")
            await session.run("three")
            (found,) = session.tools.redefined()
            assert (found.old, found.new) == (definition(fn("web").schema), _digest("web", 1))
            assert found.action == "accept" and found.tool is None


def _digest(name: str, version: int) -> str:
    return definition(fn(name, version).schema)


@pytest.mark.parametrize("move", ["rewind", "compact"])
async def test_a_redefinition_is_named_whatever_else_the_step_brings(move: str) -> None:
    """Kimi's head is in front of what a rewind or a compaction can move."""
    route = "moonshot:kimi-k3"
    async with stage() as here:
        async with here.open(here.agent(route, tools=[fn("web"), fn("other")])) as session:
            for text in ("one", "two"):
                await session.run(text)
            await session.tools.add(fn("other", 1))
            await (session.rewind() if move == "rewind" else session.compact("short"))
            await session.run("three")
            assert breaks(session) == [("redefinition", "tools")]
        assert here.judged(route).totals.undeclared_misses == 0
