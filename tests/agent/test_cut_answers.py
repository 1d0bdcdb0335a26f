"""An answer that is not whole: what of it runs, what the model reads, and what the caller is told.

Reports: 2389-research/tracker#507, jaseci-labs/jac#6766, ahwurm/localharness#77 (a cut call runs);
huggingface/chat-ui#2385, No-Compromise-AI/glm-mcp#41, pizza-bot-app/pizza-bot#90,
microsoft/PyRIT#2166 (a cut answer looks like a whole one).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.agent.trouble import answering
from tests.wire.test_retries import framed
from tests.wire.wires import (
    CHAT,
    CONVERSE,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEAKERS,
    Part,
    Speaker,
    called,
    said,
    thought,
)

from addendum import Agent, Settings
from addendum.agent.results import Notice, RequestDone, TurnDone, TurnResult
from addendum.errors import AddendumError
from addendum.log.events import AssistantMessage, ToolCall, ToolResult
from addendum.tools.functions import FunctionTool, tool

pytestmark = pytest.mark.anyio

by_wire = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.wire)
ROUTES = {
    MESSAGES: "anthropic:claude-opus-5-5",
    CHAT: "openai-chat:gpt-4.1",
    RESPONSES: "openai:gpt-4.1",
    CONVERSE: "bedrock:anthropic.claude-sonnet-4-6",
    GEMINI: "gemini:gemini-3.8-flash",
}

HERE = "http://127.0.0.1:9"


class Played:
    """What came of a turn to which a provider gave these answers.

    Attributes:
        ran: Arguments that a tool ran with, by the tool's name.
        result: What the turn gave.
        results: What answered its calls.
        early: Names of the calls that started while the answer streamed.
        bodies: The requests.
    """

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.result: TurnResult | None = None
        self.results: list[ToolResult] = []
        self.early: list[str] = []
        self.bodies: list[dict[str, Any]] = []

    def tools(self) -> list[FunctionTool[..., Any]]:
        @tool
        async def wipe(folder: str = "/") -> str:
            """Delete everything below a folder."""
            self.ran.append(("wipe", folder))
            return f"deleted {folder}"

        @tool(read_only=True)
        async def look(folder: str = "/") -> str:
            """List a folder."""
            self.ran.append(("look", folder))
            return f"seen {folder}"

        return [wipe, look]


async def play(
    speaker: Speaker, *answers: tuple[Sequence[Part], str], store: str = "memory://", **more: Any
) -> Played:
    """Run a turn, and another one behind it."""
    played = Played()
    framed_ones = [framed(speaker, speaker.stream(parts, word)) for parts, word in answers]
    done = framed(speaker, speaker.stream([said("done")], speaker.whole[1]))
    bodies = [body for _, body in framed_ones]
    transport = answering(*bodies, done[1], media=done[0])
    agent = Agent(
        ROUTES[speaker],
        tools=played.tools(),
        transport=transport,
        base_url=HERE,
        record=True,
        **more,
    )
    async with agent.open("s", store=store) as session:
        played.result = await session.run("Tidy up.")
        assert (await session.run("And now?")).text == "done"
        played.bodies = [json.loads(sent.body) for sent in session.sent]
        data = [event.data for event in session.log.events]
    played.results = [each for each in data if isinstance(each, ToolResult)]
    played.early = [each.name for each in data if isinstance(each, ToolCall) and each.early]
    return played


# -- what runs ----------------------------------------------------------------------------------


@by_wire
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("pieces", [(), ("",), ("{}",), ('{"folder": "/ho',)])
async def test_a_call_that_was_cut_never_runs(
    speaker: Speaker, early: bool, pieces: tuple[str, ...]
) -> None:
    if speaker is GEMINI and pieces not in ((), ("{}",)):
        pieces = ()
    for word in (*speaker.cut, *speaker.withheld, *speaker.trouble):
        parts = [
            said("I will"),
            called("look", '{"folder": "/a"}', id="c1"),
            called("look" if early else "wipe", *pieces, id="c2"),
        ]
        played = await play(speaker, (parts, word), early_start=early)
        assert played.ran == [("look", "/a")], word
        whole, cut = played.results
        assert (whole.text, whole.is_error) == ("seen /a", False)
        assert (cut.code, cut.is_error) == ("CUT", True)
        assert "did not run" in cut.text and "Call it again" in cut.text
        assert played.early in ([], ["look"])


@by_wire
async def test_alone_in_its_answer_it_does_not_run_either(speaker: Speaker) -> None:
    for name in ("wipe", "call_tool", "nobody_has_this"):
        played = await play(speaker, ([called(name)], speaker.cut[0]))
        assert played.ran == []
        assert [each.code for each in played.results] == ["CUT"]


@by_wire
@pytest.mark.parametrize("dispatch", [True, False])
async def test_a_call_through_the_dispatcher_is_cut_like_any_other(
    speaker: Speaker, dispatch: bool
) -> None:
    for pieces in ((), ("{}",)):
        parts = [called("call_tool", *pieces)]
        played = await play(
            speaker, (parts, speaker.cut[0]), tool_dispatch=dispatch, tool_changes="dispatch"
        )
        assert played.ran == [] and [each.code for each in played.results] == ["CUT"]


@by_wire
async def test_where_nobody_knows_the_end_a_call_runs_with_what_it_has(speaker: Speaker) -> None:
    parts = [called("wipe", '{"folder": "/b"}', id="c1"), called("wipe", id="c2")]
    played = await play(speaker, (parts, "a_new_word"))
    if speaker is GEMINI:
        assert played.ran == [("wipe", "/b"), ("wipe", "/")]
    else:
        assert played.ran == [("wipe", "/b")]
        assert [each.code for each in played.results] == [None, "CUT"]
    assert played.result is not None
    assert any("may not be whole (a_new_word)" in line for line in played.result.notices)


@by_wire
async def test_the_output_limit_that_was_set_tells_a_cut_answer_too(speaker: Speaker) -> None:
    """vllm-project/vllm#58228: called whole, and all of the limit used."""
    parts = [called("wipe", "{}")]
    answer = (parts, speaker.whole[0])
    played = await play(speaker, answer, settings=Settings(max_tokens=7))
    assert played.ran == [] and played.result is not None
    assert played.result.requests[0].ending == "cut"
    assert (await play(speaker, answer, settings=Settings(max_tokens=8))).ran == [("wipe", "/")]


@by_wire
async def test_the_next_requests_hold_the_cut_call_with_whole_arguments(
    speaker: Speaker, tmp_path: Path
) -> None:
    pieces = () if speaker is GEMINI else ('{"folder": "/ho',)
    parts = [called("look", '{"folder": "/a"}', id="c1"), called("wipe", *pieces, id="c2")]
    store = f"sqlite:///{tmp_path / 's.db'}"
    played = await play(speaker, (parts, speaker.cut[0]), store=store)
    text = json.dumps(played.bodies[1])
    assert "did not run" in text and "/ho" not in text.replace("/home", "")
    assert all("c2" in json.dumps(body) for body in played.bodies[1:])


# -- what is told -------------------------------------------------------------------------------


@by_wire
@pytest.mark.parametrize("parts", [[said("half an ans")], [thought("hm")], []])
async def test_an_answer_that_is_not_whole_is_told(speaker: Speaker, parts: list[Part]) -> None:
    for word in (*speaker.cut, *speaker.withheld):
        played = await play(speaker, (parts, word))
        result = played.result
        assert result is not None
        (request,) = result.requests
        assert result.ending == request.ending == ("cut" if word in speaker.cut else "withheld")
        assert (request.stop, result.empty) == (word, not any(parts) or parts == [thought("hm")])
        (line,) = result.notices
        assert word in line and line.startswith(f"{ROUTES[speaker]}: the answer ")
    limit = await play(speaker, (parts, speaker.cut[0]))
    assert limit.result is not None
    assert "Settings(max_tokens=...)" in limit.result.notices[0]


@by_wire
@pytest.mark.parametrize("parts", [[], [said("")], [said(" \n ")], [thought("hm")]])
async def test_an_empty_answer_is_told(speaker: Speaker, parts: list[Part]) -> None:
    played = await play(speaker, (parts, speaker.whole[1]))
    assert played.result is not None
    assert (played.result.ending, played.result.requests[0].ending) == ("whole", "whole")
    assert [line for line in played.result.notices if "empty" in line]


@by_wire
async def test_of_a_whole_answer_nothing_is_told(speaker: Speaker) -> None:
    parts = [said("I look"), called("look", "{}")]
    played = await play(speaker, (parts, speaker.whole[0]))
    assert played.result is not None
    assert (played.result.notices, played.result.ending, played.result.empty) == (
        (),
        "whole",
        False,
    )
    assert [request.ending for request in played.result.requests] == ["whole", "whole"]


async def test_the_stream_tells_it_in_its_place() -> None:
    media, body = framed(CHAT, CHAT.stream([said("half"), called("wipe")], "length"))
    _, done = framed(CHAT, CHAT.stream([said("done")], "stop"))
    agent = Agent(
        ROUTES[CHAT],
        tools=Played().tools(),
        transport=answering(body, done, media=media),
        base_url=HERE,
    )
    async with agent.open("s", store="memory://") as session:
        events = [event async for event in session.stream("go")]
    kinds = [type(event) for event in events]
    told = [event.text for event in events if isinstance(event, Notice)]
    assert ["cut off at the output limit" in told[0], "not run" in told[1]] == [True, True]
    assert "wipe" in told[1]
    assert kinds.index(Notice) < kinds.index(RequestDone)
    last = events[-1]
    assert isinstance(last, TurnDone) and last.result.ending == "whole"
    first = next(event for event in events if isinstance(event, RequestDone))
    assert first.figures.ending == "cut"


async def test_what_the_provider_says_of_a_refusal_is_kept_and_told() -> None:
    events = MESSAGES.stream([said("I")], "refusal")
    details = {"type": "refusal", "category": "cyber", "recommended_model": "claude-other-9"}
    for name, data in events:
        if name == "message_delta":
            data["delta"]["stop_details"] = {**details, "explanation": "no exploits"}
    media, body = framed(MESSAGES, events)
    agent = Agent(ROUTES[MESSAGES], transport=answering(body, media=media), base_url=HERE)
    async with agent.open("s", store="memory://") as session:
        result = await session.run("go")
        data = [event.data for event in session.log.events]
    (line,) = result.notices
    assert all(word in line for word in ("cyber", "no exploits", "it recommends claude-other-9"))
    (message,) = (each for each in data if isinstance(each, AssistantMessage))
    figures = result.requests[0].details
    assert figures is not None and bytes(message.details) == bytes(figures)  # type: ignore[arg-type]
    assert json.loads(bytes(figures))["stop_details"]["recommended_model"] == "claude-other-9"


@by_wire
async def test_a_summary_that_is_not_whole_replaces_nothing(speaker: Speaker) -> None:
    long = said("An answer of some length, so that a summary is shorter than it. " * 3)
    for word in (*speaker.cut, *speaker.withheld):
        media, first = framed(speaker, speaker.stream([long], speaker.whole[1]))
        _, cut = framed(speaker, speaker.stream([said("They said")], word))
        transport = answering(first, cut, media=media)
        async with Agent(ROUTES[speaker], transport=transport, base_url=HERE).open(
            "s", store="memory://"
        ) as session:
            await session.run("Say it at some length, please.")
            before = list(session.log.surface.nodes)
            with pytest.raises(AddendumError, match="the summary is not whole"):
                await session.compact(keep_turns=0)
            assert session.log.surface.nodes == before
