"""Images and documents in the results of MCP tools, on every wire."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest
from msgspec import structs
from tests.agent.stage import (
    CHAT,
    CLAUDE,
    DEEPSEEK,
    _record,  # pyright: ignore[reportPrivateUsage]
    breaks,
    results,
    stage,
)
from tests.property.judging import count, rules
from tests.tools.pictures import PDF, b64, gif, png
from tests.wire.test_vendor_types import CHECKS, comparable

from addendum.agent.calls.hooks import Hook, HookCall, Replace
from addendum.agent.session import runtime_of
from addendum.cache.figures import judge
from addendum.cache.invariants import check
from addendum.errors import ConfigurationError
from addendum.lab.mcp_servers import CannedTool, in_process
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.values import Media
from addendum.tools.mcp.values import ServerSpec
from addendum.tools.servers import Outcome

pytestmark = pytest.mark.anyio

PICTURE = b64(png(2, 2))
OTHER = b64(gif())
FILE = b64(PDF)
ROUTES = (
    CLAUDE,
    CHAT,
    "openai:gpt-6.1-sol",
    "openai:gpt-4.1",
    "bedrock:anthropic.claude-opus-5-5",
    "gemini:gemini-3.8-flash",
    "gemini:gemini-2.5-pro",
    DEEPSEEK,
)


def look(*names: str) -> ScriptStep:
    calls = tuple(ScriptCall(f"eyes__{name}", {}) for name in names)
    return ScriptStep(" ".join(names), (Entry(calls=calls), Entry(text="I saw it.")))


SCRIPT = Script(
    (
        ScriptStep("hello", (Entry(text="Hello."),)),
        look("plain"),
        look("see"),
        look("see", "plain", "read"),
        look("see", "see"),
        ScriptStep("bye", (Entry(text="Bye."),)),
    )
)


def eyes() -> ServerSpec:
    """A server that shows a picture, shows a picture and a document, and says a word."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    picture = types.ImageContent(data=PICTURE, mime_type="image/png")
    other = types.ImageContent(data=OTHER, mime_type="image/gif")
    file = types.EmbeddedResource(
        resource=types.BlobResourceContents(
            uri="file:///a.pdf", mime_type="application/pdf", blob=FILE
        )
    )
    words = types.TextContent(text="Look: <tool_update>")
    tools = [
        CannedTool("plain", "Says.", schema, "only text"),
        CannedTool("read", "Reads.", schema, "", content=(words, file)),
        CannedTool("see", "Sees.", schema, "", content=(words, picture, other)),
    ]
    return ServerSpec(name="eyes", server=in_process("eyes", tools), on=True)


@pytest.mark.parametrize("route", ROUTES)
async def test_every_route_takes_a_result_with_files_or_is_told_of_it(route: str) -> None:
    async with stage(SCRIPT) as here:
        agent = here.agent(route, mcp_servers=[eyes()])
        async with here.open(agent) as session:
            for text in ("hello", "plain", "see", "see plain read"):
                await session.run(text)
            before = session.sent[-1].body
            logged = runtime_of(session).requests.encoded(route)
        async with here.open(here.agent(route, mcp_servers=[eyes()])) as session:
            await session.run("bye")
            after = session.sent[-1].body
            found = breaks(session)
        assert not here.refused()
        # Reopened from the store, the next request begins as the last one did.
        shown = json.loads(before), json.loads(after)
        key = next(name for name in ("messages", "input", "contents") if name in shown[0])
        first, second = (unmarked(each[key]) for each in shown)
        assert second[: len(first)] == first
        report = here.judged(route)
        assert not report.totals.undeclared_misses
        wanted = {"settings changed"} if route == CLAUDE else set[str]()
        assert {reason for reason, _ in found} == wanted
        assert logged
        for body in shown:
            assert plain(comparable(CHECKS[agent.setup.route.wire](body))) == plain(
                comparable(body)
            )
        text = before.decode()
        takes = route not in (DEEPSEEK, "gemini:gemini-2.5-pro")
        assert text.count(PICTURE) == (2 if takes else 0)
        gifs = route in (CLAUDE, "bedrock:anthropic.claude-opus-5-5")
        assert text.count(OTHER) == (2 if gifs else 0)
        assert text.count(FILE) == (1 if takes else 0)
        assert text.count("[not shown: ") == (0 if gifs else 2 if takes else 3)


def plain(value: Any) -> str:
    """A body as text; google-genai writes bytes in the other alphabet of base64."""
    return json.dumps(value, sort_keys=True).replace("-", "+").replace("_", "/")


def unmarked(value: Any) -> Any:
    marks = ("cache_control", "prompt_cache_breakpoint")
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name not in marks}
    if isinstance(value, list):
        return [unmarked(each) for each in value if "cachePoint" not in each]
    return value


async def test_the_log_has_one_form_for_all_wires() -> None:
    async with stage(SCRIPT) as here, here.open(here.agent(CLAUDE, mcp_servers=[eyes()])) as s:
        await s.run("see plain read")
        see, plain, read = results(s)
        assert see.text == (
            f"Look: <tool_update>\n[image 1: image/png, {len(png(2, 2))} bytes]\n"
            "[image 2: image/gif, 29 bytes]"
        )
        assert see.media == (Media("image/png", PICTURE), Media("image/gif", OTHER))
        assert (plain.text, plain.media) == ("only text", ())
        assert read.media == (Media("application/pdf", FILE),)
        stored = await here.store.read("s")
    told = [json.loads(each)["data"] for each in stored]
    kept = [each for each in told if each["type"] == "tool/result"]
    # A result of text alone is stored as it always was.
    assert ["media" in each for each in kept] == [True, False, True]


async def test_a_hook_that_replaces_a_result_takes_its_files_too() -> None:
    def after(call: HookCall, outcome: Outcome) -> Replace | None:
        return Replace("not for you") if call.name == "eyes__read" else None

    async with stage(SCRIPT) as here:
        agent = here.agent(CLAUDE, mcp_servers=[eyes()], hooks=[Hook(after=after)])
        async with here.open(agent) as session:
            await session.run("see plain read")
            see, _, read = results(session)
            assert len(see.media) == 2
            assert (read.text, read.media) == ("not for you", ())
            assert FILE.encode() not in session.sent[-1].body


async def test_files_that_a_compaction_cut_away_are_gone_and_others_are_shown_again() -> None:
    async with stage(SCRIPT) as here:
        async with here.open(here.agent(CLAUDE, mcp_servers=[eyes()])) as session:
            await session.run("see")
            await session.compact("It saw a dot.")
            await session.run("hello")
            assert PICTURE.encode() not in session.sent[-1].body
            await session.run("see see")
            assert session.sent[-1].body.count(PICTURE.encode()) == 2
            reasons = [reason for reason, _ in breaks(session)]
        assert reasons == ["settings changed", "compaction", "settings changed"]
        assert not here.refused()
        assert not here.judged(CLAUDE).totals.undeclared_misses


@pytest.mark.parametrize("route", ROUTES)
async def test_files_beside_a_turns_instructions_keep_the_prefix(route: str) -> None:
    async with stage(SCRIPT) as here:
        agent = here.agent(route, mcp_servers=[eyes()], turn_instructions="Be very brief.")
        said: list[str] = []
        async with here.open(agent) as session:
            for text in ("hello", "see", "see plain read", "bye"):
                await session.run(text)
                said += [text] * (len(session.sent) - len(said))
        assert not here.refused()
        sent = [
            structs.replace(_record(each), human=human, tail_text="Be very brief.")
            for each, human in zip(here.sent, said, strict=True)
        ]
        assert not check(sent, rules(route), among=sent)
        assert not judge(sent, rules(route), count).totals.undeclared_misses


@pytest.mark.parametrize(("route", "longer"), [(CLAUDE, False), (DEEPSEEK, True)])
async def test_a_summary_may_be_as_long_as_the_files_that_it_stands_for(
    route: str, longer: bool
) -> None:
    picture = types.ImageContent(data=b64(png(2, 2, noise=3_000)), mime_type="image/png")
    tools = [CannedTool("look", "Looks.", {"type": "object"}, "", content=(picture,))]
    spec = ServerSpec(name="eyes", server=in_process("eyes", tools), on=True)
    entries = (Entry(calls=(ScriptCall("eyes__look", {}),)), Entry(text="A dot."))
    summary = "It saw a grey dot. " * 100
    async with stage(Script((ScriptStep("see", entries, summary=summary),))) as here:
        async with here.open(here.agent(route, mcp_servers=[spec])) as session:
            await session.run("see")
            # A route that shows no files is told of them in a line.
            if longer:
                with pytest.raises(ConfigurationError, match="longer than what it would replace"):
                    await session.compact()
            else:
                assert await session.compact() == summary
