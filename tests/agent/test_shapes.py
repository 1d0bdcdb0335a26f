"""Shapes of a history: known ones are kept to, an unknown one is found, remembered and told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

from addendum import Agent, Limits, encoding, tool
from addendum.agent.context.shapes import WORDS
from addendum.agent.results import Notice
from addendum.errors import AddendumError
from addendum.lab.chat_shapes import CHAT_SHAPES, USAGE_OPTION
from addendum.lab.exchange import Switches
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Lab, open_lab
from addendum.log.events import CacheBreak, RequestContext, RouteDowngrade
from addendum.routes import resolve
from addendum.routes.shapes import SHAPES
from addendum.stores import MemoryStore
from addendum.wire.openai_chat.shapes import refused_shapes
from addendum.wire.transport import Transport, TransportSettings

pytestmark = pytest.mark.anyio

BOTH = frozenset({"user-after-user", "user-after-result"})

REFUSALS = [
    # ggml-org/llama.cpp#19851, eclipse-theia/theia#17104, sipeed/picoclaw#207
    (
        "Jinja Exception: After the optional system message, conversation roles must alternate user"
        " and assistant roles except for tool calls and results.",
        BOTH,
    ),
    # google/adk-python#1373, dnakov/anon-kode#60, microsoft/autogen#1037, vllm-project/vllm#6862
    ("Conversation roles must alternate user/assistant/user/assistant/...", BOTH),
    # deepseek-ai/DeepSeek-R1#21, Aider-AI/aider#2933, open-webui/open-webui#9266
    (
        "deepseek-reasoner does not support successive user or assistant messages (messages[1] and"
        " messages[2] in your input).",
        frozenset({"user-after-user"}),
    ),
    # datapizza-labs/datapizza-ai#98, avante-corp/avante.nvim#2562, mistralai/mistral-vibe#578
    ("Unexpected role 'user' after role 'tool'", frozenset({"user-after-result"})),
    # MoonshotAI/kimi-code#1985, AstrBotDevs/AstrBot#7200, anomalyco/opencode#37887
    (
        "Invalid request: the message at position 8 with role 'assistant' must not be empty",
        frozenset({"empty-answer"}),
    ),
    # OpenHands/OpenHands#8685, metadist/synaplan#1115, solbrowse/extension#16
    (
        "Assistant message must have either content or tool_calls, but not none.",
        frozenset({"empty-answer"}),
    ),
    # janhq/jan#8136, SimonSchubert/Kai#265, tashfeenahmed/freellmapi#1070
    (
        "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' :"
        " property 'reasoning_content' is unsupported)]",
        frozenset({"reasoning_content"}),
    ),
    # karthink/gptel#774
    (
        "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' :"
        " property 'reasoning' is unsupported, did you mean 'role'?)]",
        frozenset({"reasoning"}),
    ),
    # Kilo-Org/kilocode#10375, CherryHQ/cherry-studio#16790
    (
        "messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content'"
        " is unsupported",
        frozenset({"reasoning_content"}),
    ),
    # charmbracelet/crush#1590, OpenMinis/OpenMinis#87
    (
        '{"type":"extra_forbidden","loc":["body","messages",4,"assistant","reasoning_content"],'
        '"msg":"Extra inputs are not permitted"}',
        frozenset({"reasoning_content"}),
    ),
    # router-for-me/CLIProxyAPI#5859, ollama/ollama#14214, brainlid/langchain#539
    (
        "* GenerateContentRequest.contents[2].parts[0].function_response.name: Name cannot be"
        " empty.",
        frozenset({"nameless-result"}),
    ),
    # anomalyco/opencode#1680, jundot/omlx#1997, nearai/ironclaw#1241, jackmpcollins/magentic#276
    (
        "Tool call id was call_49c89af0 but must be a-z, A-Z, 0-9, with a length of 9",
        frozenset({"long-call-id"}),
    ),
    # 0x676e67/duckai#16
    (
        "messages[0].content: invalid type: sequence, expected a string at line 5 column 19",
        frozenset({"text-parts"}),
    ),
    # danny-avila/LibreChat#3111
    (
        "Invalid type for 'messages[0].content': expected a string, but got an array instead",
        frozenset({"text-parts"}),
    ),
    # charmbracelet/crush#279, Mistral 3 behind docker
    (
        "After the optional system message, conversation roles must alternate user and assistant"
        " roles...",
        BOTH,
    ),
    # nicholasgriffintn/ai-platform#414, NousResearch/hermes-agent#20154
    (
        "HTTP 400: Unexpected role 'user' after role 'tool'",
        frozenset({"user-after-result"}),
    ),
    # mistralai/mistral-common#169, through vLLM
    (
        '{"error":{"message":"Unexpected role \'user\' after role \'tool\'",'
        '"type":"BadRequestError"}}',
        frozenset({"user-after-result"}),
    ),
    # tashfeenahmed/freellmapi#165
    (
        "assistant messages must include non-empty content or tool_calls",
        frozenset({"empty-answer"}),
    ),
    # anthropics/claude-code#6774, ding113/claude-code-hub#432, anthropics/claude-code#2196
    (
        "messages.11: all messages must have non-empty content except for the optional final"
        " assistant message",
        frozenset({"empty-answer"}),
    ),
    # envoyproxy/ai-gateway#508
    (
        "The text field in the ContentBlock object at messages.3.content.0 is blank. Add text to"
        " the text field, and try again.",
        frozenset({"empty-answer"}),
    ),
    # scouzi1966/maclocal-api#67
    (
        "TemplateException: Invalid tool response: 'name' must be provided.",
        frozenset({"nameless-result"}),
    ),
    # binaricat/Netcatty#350
    (
        "GenerateContentRequest.contents[].parts[].function_response Name cannot be empty",
        frozenset({"nameless-result"}),
    ),
    # earendil-works/pi#1360
    (
        "* contents[466].parts[0].function_response.name: [REQUIRED_FIELD_MISSING]",
        frozenset({"nameless-result"}),
    ),
    # karthink/gptel#1203, avante-corp/avante.nvim#2951
    (
        "Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9",
        frozenset({"long-call-id"}),
    ),
    # BibekBhusal0/zen-custom-js#7: an id of letters alone
    (
        "Tool call id was call_search but must be a-z, A-Z, 0-9, with a length of 9.",
        frozenset({"long-call-id"}),
    ),
    # ml-explore/mlx-lm#1375: what the templates of Mistral v3 raise
    (
        "Tool call IDs should be alphanumeric strings with length 9!",
        frozenset({"long-call-id"}),
    ),
    # gonka-ai/gonka#985
    (
        "json: cannot unmarshal array into Go struct field Message.messages.content of type string",
        frozenset({"text-parts"}),
    ),
    # brontoguana/krasis#10
    (
        "Template render failed: invalid operation: tried to use + operator on unsupported types"
        " string and sequence (in chat:98)",
        frozenset({"text-parts"}),
    ),
    # 8monkey-ai/hebo-gateway#169
    (
        "messages[0].content: Invalid input: expected string, received array",
        frozenset({"text-parts"}),
    ),
    # lmstudio-ai/lmstudio-bug-tracker#261, SAIL-Research-Lab/cheetahclaws#72
    ("invalid message content type: <nil>", frozenset({"null-content"})),
    # mistralai/mistral-common#324
    (
        "messages.1.content.str: Input should be a valid string [type=string_type,"
        " input_value=None, input_type=NoneType]",
        frozenset({"null-content"}),
    ),
    # peach0x33a/cmdcode2api#7
    (
        'Invalid request error: expected string, received null at "params.messages[2].content"',
        frozenset({"null-content"}),
    ),
    # cubist38/mlx-openai-server#205: dropped, and so the result stands alone
    (
        "Message has tool role, but there was no previous assistant message with a tool call!",
        frozenset({"null-content"}),
    ),
    # abetlen/llama-cpp-python#1805
    (
        "messages[2].content: Field required",
        frozenset({"null-content"}),
    ),
    # openai/openai-agents-python#442, avante-corp/avante.nvim#2347
    (
        '{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],'
        '"msg":"Extra inputs are not permitted"}',
        frozenset({"usage-option"}),
    ),
    # dnakov/anon-kode#53, vybestack/llxprt-code#114
    ("Unknown parameter: stream_options", frozenset({"usage-option"})),
    # What is about something else.
    ("The `reasoning_content` in the thinking mode must be passed back to the API.", frozenset()),
    ("Unsupported value: 'reasoning_effort' does not support 'max'", frozenset()),
    ("Unexpected role 'tool' after role 'user'", frozenset()),
    ("Invalid schema for function 'user': array schema missing items", frozenset()),
    ("maximum context length is 9 tokens", frozenset()),
    ("messages[3].role: unknown variant `system`, expected user", frozenset()),
]


@pytest.mark.parametrize(("said", "shapes"), REFUSALS)
async def test_a_refusal_tells_the_shape_that_it_is_about(
    said: str, shapes: frozenset[str]
) -> None:
    assert refused_shapes(said) == shapes
    assert refused_shapes(encoding.encode({"error": {"message": said}}).decode()) == shapes
    assert refused_shapes(f"Provider returned error: {said!r} (request 7)") >= shapes


async def test_every_shape_has_its_words() -> None:
    fields = {"reasoning_content", "reasoning", "reasoning_details"}
    assert WORDS.keys() | fields == SHAPES


# -- sessions -----------------------------------------------------------------------------


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
def later(text: str = "") -> str:
    """Say it later."""
    return f"later {text}"


CALL = ScriptCall("add", {"a": 1, "b": 2})
SCRIPT = Script(
    (
        ScriptStep("one", (Entry("first", "hm", (CALL,)), Entry("done"))),
        ScriptStep("two", (Entry("", "nothing to say"),)),
        ScriptStep("three", (Entry("", "", (CALL,)), Entry("", "", (CALL,)))),
        ScriptStep("four", (Entry("", "", (CALL,)),)),
        ScriptStep("five", (Entry("still there"),)),
        ScriptStep("six", (Entry("", "", (ScriptCall("later", {"text": "x"}),)), Entry("yes"))),
        ScriptStep("seven", (Entry("the end"),), summary="All that was."),
        ScriptStep("eight", (Entry("behind the summary"),)),
    )
)

OWN = {
    "moonshot:kimi-k3": (),
    "groq:openai/gpt-oss-120b": (),
    "mistral:mistral-large-4": (),
    "mistral:magistral-medium-1.2": (),
    "deepseek-chat:deepseek-flash": ("neighbours", "empty"),
    "llamacpp:gemma-3-27b-it": ("template", "behind results", "empty"),
    "llamacpp:devstral-small-2": ("template", "behind results", "empty", "ids"),
    "vllm:google/gemma-4-31b": ("template", "behind results", "empty"),
    "vllm:mistralai/Devstral-Small-2-24B": ("template", "behind results", "empty", "ids"),
    "sglang:mistralai/Ministral-3-8B": ("template", "behind results", "empty", "ids"),
}
"""Endpoints whose shapes are known, with what the lab refuses there beside the vendor's own."""


@asynccontextmanager
async def strict(refused: frozenset[str]) -> AsyncIterator[Lab]:
    async with open_lab(SCRIPT, switches=Switches(refused_shapes=refused)) as lab:
        yield lab


async def lived(lab: Lab, route: str, store: MemoryStore, name: str) -> tuple[list[Any], Any]:
    """Play a session with a toggle, a failed turn, an empty answer and stops; return its log."""
    provider = route.partition(":")[0]
    transport = Transport(TransportSettings(retries=0))
    agent = Agent(
        route,
        base_url=lab.base_url(provider),
        tools=[add],
        instructions="Be brief.",
        tool_dispatch=True,
        limits=Limits(steps=2),
        transport=transport,
    )
    notices: list[str] = []
    async with agent.open(name, store=store) as session:

        async def run(text: str) -> Any:
            last: Any = None
            async for last in session.stream(text):
                if isinstance(last, Notice):
                    notices.append(last.text)
            return last.result

        await run("one")
        await run("two")
        with pytest.raises(AddendumError):
            await run("three")  # The limit of steps, behind results.
        lab.fail_next(provider, status=500)
        with pytest.raises(AddendumError):
            await run("four")
        session.turn_instructions = "It is Tuesday."
        await run("five")
        await session.tools.add(later)
        stopped = asyncio.ensure_future(session.run("six"))
        await asyncio.sleep(0)
        stopped.cancel()
        with suppress(asyncio.CancelledError, AddendumError):
            await stopped
        result = await run("seven")
        assert result.text == "the end"
        session.turn_instructions = None
        await session.compact(keep_turns=0)
        result = await run("eight")
        assert result.text == "behind the summary"
        events = [event.data for event in session.log.events]
    await transport.aclose()
    return events, notices


def refused(lab: Lab) -> list[str]:
    said = [each.refusal for each in lab.captures if each.refusal]
    return [each for each in said if "asked to fail" not in each]


@pytest.mark.parametrize("route", OWN)
async def test_a_session_lives_on_an_endpoint_whose_shapes_are_known(route: str) -> None:
    async with strict(frozenset(OWN[route])) as lab:
        events, _ = await lived(lab, route, MemoryStore(), "s")
        assert refused(lab) == []
        sent = [encoding.decode(each.body)["messages"] for each in lab.captures]
    assert not [each for each in events if isinstance(each, RouteDowngrade)]
    assert {each.at for each in events if isinstance(each, CacheBreak)} <= {"messages", "none"}
    summed = next(at for at, each in enumerate(sent) if "<compaction_request>" in str(each[-1]))
    assert summed > 7
    for earlier, later_one in pairwise(sent[:summed]):
        for at, message in enumerate(earlier):
            if "<turn_instructions>" in str(message):
                break
            assert later_one[at] == message, (at, message, later_one)


@pytest.mark.parametrize("shape", [*sorted(CHAT_SHAPES.keys() - {"second system"}), USAGE_OPTION])
@pytest.mark.parametrize("route", ["compatible:model", "openai-chat:gpt-4.1"])
async def test_a_shape_that_nobody_knew_of_is_found_remembered_and_told(
    route: str, shape: str
) -> None:
    store = MemoryStore()
    async with strict(frozenset({shape})) as lab:
        events, notices = await lived(lab, route, store, "first")
        found = [each for each in events if isinstance(each, RouteDowngrade)]
        first = refused(lab)
        # Each is refused once, and told once.
        assert len(first) == len(found) == len([n for n in notices if "refused" in n])
        known = set(resolve(route, environ={}).shapes.refuses)
        assert not [each for each in found if known.intersection(each.rejected)]
        lab.captures.clear()
        again, _ = await lived(lab, route, store, "second")
        assert refused(lab) == []
        assert not [each for each in again if isinstance(each, RouteDowngrade)]
        context = next(each for each in again if isinstance(each, RequestContext))
        assert {name for each in found for name in each.rejected} <= set(context.avoids)


async def test_a_refusal_that_nobody_understands_is_found_by_trying() -> None:
    store = MemoryStore()

    def puzzling(messages: Any) -> str:
        return "bad request (7)" if any("reasoning_content" in m for m in messages) else ""

    async with strict(frozenset({"reasoning_content"})) as lab:
        with pytest.MonkeyPatch.context() as patch:
            checks = {**CHAT_SHAPES, "reasoning_content": puzzling}
            patch.setattr("addendum.lab.chat_shapes.CHAT_SHAPES", checks)
            events, notices = await lived(lab, "compatible:model", store, "first")
            assert len(refused(lab)) == 1
            (found,) = [each for each in events if isinstance(each, RouteDowngrade)]
            assert "reasoning_content" in found.rejected
            # Nothing is suspected but what the refused request had for the first time.
            assert set(found.rejected) <= {"reasoning_content", "nameless-result", "long-call-id"}
            assert len([line for line in notices if "refused" in line]) == 1
            lab.captures.clear()
            await lived(lab, "compatible:model", store, "second")
            assert refused(lab) == []


async def test_what_is_tried_in_vain_is_undone() -> None:
    store = MemoryStore()
    async with strict(frozenset()) as lab:
        agent = Agent("compatible:model", base_url=lab.base_url("compatible"), tools=[add])
        async with agent.open("s", store=store) as session:
            await session.run("one")
            lab.fail_next("compatible", status=400, times=2)
            with pytest.raises(AddendumError):
                await session.run("two")
            before = len(lab.captures)
            result = await session.run("seven")
            assert result.text == "the end" and len(lab.captures) == before + 1
            events = [event.data for event in session.log.events]
    assert not [each for each in events if isinstance(each, RouteDowngrade)]
    epochs = [each for each in events if isinstance(each, RequestContext)]
    assert epochs[-1] == epochs[0]


# -- scenarios ----------------------------------------------------------------------------

EVERY = "ADDENDUM_EVERY" in os.environ
SCENARIOS = ("g2", "wide", "tail", "flap", "redefine", "prompt-and-tool", "empty-head")
SAMPLE = [
    ("tail", "template", "compatible:model"),
    ("wide", "behind results", "vllm:google/gemma-4-31b"),
    ("redefine", "ids", "openai-chat:gpt-4.1"),
    ("prompt-and-tool", "second system", "openai-chat:gpt-5.4"),
    ("flap", "nameless", "zai:glm-5.3"),
]
ALL = [
    (scenario, shape, route)
    for scenario in SCENARIOS
    for shape in CHAT_SHAPES
    for route in ("compatible:model", "openai-chat:gpt-5.4", "mistral:mistral-large-4")
]


@pytest.mark.parametrize(("name", "shape", "route"), ALL if EVERY else SAMPLE)
async def test_every_scenario_on_every_strict_shape(name: str, shape: str, route: str) -> None:
    switches = Switches(refused_shapes=frozenset({shape}))
    run = await run_scenario(find(name), route, switches=switches)
    assert run.holds, run.violations[:3]
    assert run.report.totals.undeclared_misses == 0
