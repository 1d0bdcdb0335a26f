"""What goes wrong with a provider's account, model, limits and filters, on each wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.agent.stage import stage
from tests.agent.trouble import WIRES, answering, attempt, one_line, world

from addendum import Agent
from addendum.agent.results import Notice, TurnDone
from addendum.errors import (
    AddendumError,
    ConfigurationError,
    ProviderError,
    ProviderRefused,
    StreamBroken,
    UnknownRoute,
)
from addendum.lab.aws_frames import frame
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.log.events import AssistantMessage, CacheBreak, TurnEnd
from addendum.routes import resolve
from addendum.wire.transport import Transport, TransportSettings

pytestmark = pytest.mark.anyio

CLAUDE, DEEPSEEK, CHAT, OPENAI, BEDROCK, GEMINI = WIRES
COMPATIBLE = "compatible:some-model"


# -- refusals -----------------------------------------------------------------------------------


@dataclass
class Case:
    name: str
    route: str
    status: int
    body: Any
    says: str


def claude(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}}


def openai(message: str, code: str | None = None) -> Any:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


def google(status: str, message: str) -> Any:
    return [{"error": {"code": 400, "message": message, "status": status}}]


CASES = [
    Case(
        "wrong region",
        BEDROCK,
        400,
        {"message": "The provided model identifier is invalid."},
        "the region that it is served in",
    ),
    Case(
        "wrong region: no access there",
        BEDROCK,
        403,
        {"message": "You don't have access to the model with the specified model ID."},
        "check the key",
    ),
    Case(
        "expired credentials: claude",
        CLAUDE,
        401,
        claude("authentication_error", "invalid x-api-key"),
        "ANTHROPIC_API_KEY",
    ),
    Case(
        "expired credentials: bedrock",
        BEDROCK,
        403,
        {"message": "The security token included in the request is expired"},
        "renew the credentials",
    ),
    Case(
        "expired credentials: gemini",
        GEMINI,
        400,
        google("INVALID_ARGUMENT", "API key expired. Please renew the API key."),
        "renew the credentials",
    ),
    Case(
        "unknown model: openai",
        OPENAI,
        400,
        openai("The requested model 'x' does not exist.", "model_not_found"),
        "check the model's name",
    ),
    Case(
        "a model without tool support: local",
        COMPATIBLE,
        400,
        openai("registry.ollama.ai/library/some-model does not support tools"),
        "an agent without tools",
    ),
    Case(
        "a model without tool support: bedrock",
        BEDROCK,
        400,
        {"message": "This model doesn't support tool use."},
        "an agent without tools",
    ),
    Case(
        "context overflow: claude",
        CLAUDE,
        400,
        claude("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        "compact the session",
    ),
    Case(
        "context overflow: chat",
        CHAT,
        400,
        openai("This model's maximum context length is 9 tokens.", "context_length_exceeded"),
        "compact the session",
    ),
    Case(
        "context overflow: responses",
        OPENAI,
        400,
        openai("Your input exceeds the context window.", "context_length_exceeded"),
        "compact the session",
    ),
    Case(
        "context overflow: bedrock",
        BEDROCK,
        400,
        {"message": "Input is too long for requested model."},
        "compact the session",
    ),
    Case(
        "context overflow: gemini",
        GEMINI,
        400,
        google(
            "INVALID_ARGUMENT",
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
        ),
        "compact the session",
    ),
    Case(
        "content filter in front of the model",
        OPENAI,
        400,
        openai("The response was filtered due to the prompt.", "content_filter"),
        "content_filter",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_refused_request_is_one_clear_line_and_costs_one_turn(
    case: Case, tmp_path: Path
) -> None:
    async with world(tmp_path, case.route) as here:
        async with here.agent(tools=[look]).open("s", store=here.url) as session:
            await session.run("first")
            body = json.dumps(case.body).encode()
            here.lab.fail_next(here.provider, status=case.status, body=body)
            error = await attempt(session, "second")
            assert error is not None
            assert case.says in one_line(error, ProviderRefused)
            assert (await session.run("third")).text == "I heard: 'third'"
        await here.usable(here.agent(tools=[look]))


def look(q: str = "") -> str:
    """Look it up."""
    return f"looked {q}"


@pytest.mark.parametrize(
    "name",
    [
        *("anthropic:claude-nope-9", "deepseek:deepseek-nope", "openai:gpt-9.9-nope"),
        *("openai-chat:gpt-9.9-nope", "gemini:nope-9"),
    ],
)
async def test_an_unknown_model_of_a_known_provider_can_be_left_again(
    name: str, tmp_path: Path
) -> None:
    provider = name.partition(":")[0]
    known = next(each for each in WIRES if each.startswith(f"{provider}:"))
    async with world(tmp_path, name) as here:
        async with here.agent().open("s", store=here.url) as session:
            error = await attempt(session)
            assert error is not None
            said = one_line(error, ProviderRefused)
            assert "model" in said and name in f"{said} {error.route}"
            session.use(resolve(known, base_url=here.lab.base_url(provider), environ={}))
            assert (await session.run("again")).text == "I heard: 'again'"
        await here.usable(here.agent(route=known))


def test_a_model_that_belongs_to_nobody_is_told_before_anything_is_sent() -> None:
    with pytest.raises(UnknownRoute, match="anthropic has no model"):
        Agent("anthropic:gpt-4.1")


def test_a_region_that_is_not_named_or_none_is_told_before_anything_is_sent() -> None:
    for environ in ({}, {"AWS_REGION": ""}, {"AWS_REGION": "evil.example/x"}):
        route = resolve(BEDROCK, environ=environ)
        with pytest.raises(ConfigurationError, match="AWS_REGION"):
            _ = route.url


async def test_a_region_without_the_service_is_a_network_error(tmp_path: Path) -> None:
    async with world(tmp_path, BEDROCK) as here:
        # Nothing listens there, as nothing does where a region has no such service.
        async with here.agent(base_url="http://127.0.0.1:9").open("s", store=here.url) as session:
            error = await attempt(session)
            assert error is not None and "check" in one_line(error, StreamBroken)
        await here.usable()


# -- answers that were filtered, refused, empty, or not counted ---------------------------------


def sse(*events: Any) -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


def messages(text: str, stop: str, *, usage: bool = True) -> bytes:
    counted: Any = {"usage": {"input_tokens": 9, "output_tokens": 1}} if usage else {}
    block = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": text},
    }
    return sse(
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "content": [], **counted},
        },
        *([block, {"type": "content_block_stop", "index": 0}] if text else []),
        {"type": "message_delta", "delta": {"stop_reason": stop}},
        {"type": "message_stop"},
    )


def chat(text: str, stop: str, *, usage: bool = True) -> bytes:
    counted: Any = {"usage": {"prompt_tokens": 9, "completion_tokens": 1}} if usage else {}
    delta = {"role": "assistant", **({"content": text} if text else {})}
    return sse(
        {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": stop}], **counted},
    )


def responses(text: str, stop: str, *, usage: bool = True) -> bytes:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "incomplete",
        "content": [part],
    }
    details = {"incomplete_details": {"reason": stop}} if stop != "completed" else {}
    kind = "completed" if stop == "completed" else "incomplete"
    counted: Any = {"usage": {"input_tokens": 9, "output_tokens": 1}} if usage else {}
    whole = {"id": "r", "status": kind, "output": [item] if text else [], **details, **counted}
    events: list[Any] = [{"type": "response.created", "response": {"id": "r", "output": []}}]
    if text:
        events.append({"type": "response.output_item.added", "output_index": 0, "item": item})
        events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    return sse(*events, {"type": f"response.{kind}", "response": whole})


def converse(text: str, stop: str, *, usage: bool = True) -> bytes:
    frames = [frame("messageStart", {"role": "assistant"})]
    if text:
        frames.append(frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}}))
        frames.append(frame("contentBlockStop", {"contentBlockIndex": 0}))
    frames.append(frame("messageStop", {"stopReason": stop}))
    if usage:
        counted = {"inputTokens": 9, "outputTokens": 1, "totalTokens": 10}
        frames.append(frame("metadata", {"usage": counted}))
    return b"".join(frames)


def generate(text: str, stop: str, *, usage: bool = True) -> bytes:
    counted: Any = {"usageMetadata": {"promptTokenCount": 9}} if usage else {}
    content = {"content": {"role": "model", "parts": [{"text": text}]}} if text else {}
    return sse({"candidates": [{"index": 0, "finishReason": stop, **content}], **counted})


@dataclass
class Speaker:
    route: str
    say: Any
    filtered: Sequence[str]
    done: str
    media: str = "text/event-stream"


SPEAKERS = [
    Speaker(CLAUDE, messages, ("refusal",), "end_turn"),
    Speaker(CHAT, chat, ("content_filter",), "stop"),
    Speaker(OPENAI, responses, ("content_filter",), "completed"),
    Speaker(
        BEDROCK,
        converse,
        ("guardrail_intervened", "content_filtered"),
        "end_turn",
        "application/vnd.amazon.eventstream",
    ),
    Speaker(GEMINI, generate, ("SAFETY", "PROHIBITED_CONTENT"), "STOP"),
]


@pytest.mark.parametrize("text", ["", "The beginning of"], ids=["nothing", "a beginning"])
@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.route)
async def test_a_filtered_or_refused_answer_is_a_result_that_says_so(
    speaker: Speaker, text: str, tmp_path: Path
) -> None:
    async with world(tmp_path, speaker.route) as here:
        bodies = [speaker.say(text, stop) for stop in speaker.filtered]
        transport = answering(*bodies, media=speaker.media)
        async with here.agent(transport=transport).open("s", store=here.url) as session:
            for stop in speaker.filtered:
                events = [event async for event in session.stream(f"hello {stop}")]
                notices = [each.text for each in events if isinstance(each, Notice)]
                assert [stop in notice and "withheld" in notice for notice in notices] == [True]
                assert isinstance(events[-1], TurnDone)
                assert events[-1].result.text == text
                assert events[-1].result.requests[-1].stop == stop
        ends = [each for each in await here.data() if isinstance(each, TurnEnd)]
        assert [each.reason for each in ends] == ["done"] * len(speaker.filtered)
        await here.usable()


async def test_a_prompt_that_gemini_blocks_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, GEMINI) as here:
        transport = answering(sse({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}))
        async with here.agent(transport=transport).open("s", store=here.url) as session:
            error = await attempt(session)
            assert error is not None and "PROHIBITED_CONTENT" in one_line(error, ProviderRefused)
        await here.usable()


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.route)
async def test_an_empty_stream_is_an_error_and_the_session_goes_on(
    speaker: Speaker, tmp_path: Path
) -> None:
    async with world(tmp_path, speaker.route) as here:
        transport = answering(b"", media=speaker.media)
        async with here.agent(transport=transport).open("s", store=here.url) as session:
            error = await attempt(session)
            assert error is not None and one_line(error, StreamBroken)
        await here.usable()


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.route)
async def test_usage_that_is_missing_is_unknown_and_never_0(
    speaker: Speaker, tmp_path: Path
) -> None:
    async with world(tmp_path, speaker.route) as here:
        transport = answering(speaker.say("Hi.", speaker.done, usage=False), media=speaker.media)
        async with here.agent(transport=transport).open("s", store=here.url) as session:
            result = await session.run("hello")
        assert result.text == "Hi."
        usage = result.usage
        assert (usage.prompt, usage.cache_read, usage.output) == (None, None, None)
        await here.usable()


# -- reasoning that is not taken back -----------------------------------------------------------

REJECTED = [
    (
        CLAUDE,
        claude(
            "invalid_request_error", "messages.1.content.0: Invalid `signature` in `thinking` block"
        ),
    ),
    (
        CLAUDE,
        claude(
            "invalid_request_error",
            "messages.1.content.0: `thinking` block is bound to a different conversation",
        ),
    ),
    (OPENAI, openai("The encrypted content could not be verified.", "invalid_encrypted_content")),
    (GEMINI, google("INVALID_ARGUMENT", "Corrupted thought signature.")),
]


@pytest.mark.parametrize(
    ("route", "body"), REJECTED, ids=["signature", "bound", "encrypted", "thought signature"]
)
async def test_c5_reasoning_that_is_refused_is_left_out_from_then_on(
    route: str, body: Any, tmp_path: Path
) -> None:
    steps = [
        ScriptStep(
            f"turn {number}",
            (Entry(thinking=f"thought {number}", calls=(ScriptCall("look"),)), Entry(text="done")),
        )
        for number in range(4)
    ]
    async with world(tmp_path, route) as here:
        here.lab.script = Script(tuple(steps))
        agent = here.agent(tools=[look])
        async with agent.open("s", store=here.url) as session:
            await session.run("turn 0")
            old = secrets(session.log.events)
            assert old
            here.lab.fail_next(here.provider, status=400, body=json.dumps(body).encode())
            events = [event async for event in session.stream("turn 1")]
            said = [each.text for each in events if isinstance(each, Notice)]
            assert any("refused earlier reasoning" in text for text in said)
            new = secrets(session.log.events) - old
            breaks = [each.data for each in session.log.events if isinstance(each.data, CacheBreak)]
            assert [(each.reason, each.drops_reasoning) for each in breaks] == [
                ("reasoning stripped", True)
            ]
            await session.run("turn 2")
        # Opened anew it is left out as well.
        async with agent.open("s", store=here.url) as session:
            await session.run("turn 3")
        captures = [each.body.decode() for each in here.lab.captures]
        statuses = [each.status for each in here.lab.captures]
        assert statuses == [200, 200, 400, *[200] * 6]
        assert all(secret in captures[2] for secret in old)
        for body_sent in captures[3:]:
            assert not any(secret in body_sent for secret in old)
            assert body_sent.count("turn 0") == 1
        assert new and any(secret in captures[-1] for secret in new)


def secrets(events: Sequence[Any]) -> set[str]:
    found: set[str] = set()
    for event in events:
        for raw in event.data.native if isinstance(event.data, AssistantMessage) else ():
            item = json.loads(bytes(raw))
            for key in ("signature", "encrypted_content", "thoughtSignature"):
                if item.get(key):
                    found.add(item[key])
    return found


async def test_reasoning_that_is_refused_twice_is_an_error(tmp_path: Path) -> None:
    async with world(tmp_path, CLAUDE) as here:
        body = json.dumps(REJECTED[0][1]).encode()
        async with here.agent().open("s", store=here.url) as session:
            await session.run("hello")
            here.lab.fail_next(here.provider, status=400, times=2, body=body)
            error = await attempt(session)
            assert isinstance(error, AddendumError) and "signature" in one_line(error)
            assert [each.status for each in here.lab.captures] == [200, 400, 400]
        await here.usable()


@pytest.mark.parametrize("there", ["openai:gpt-4.1", "openai-chat:gpt-4.1"])
async def test_an_address_gets_no_key_of_another_provider(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-another")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    asked: list[tuple[str, str]] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.url.host, request.headers.get("authorization", "")))
        return httpx2.Response(400, json={"error": {"message": "not now"}})

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    transport = Transport(TransportSettings(retries=0), client=client)
    async with stage() as here:
        async with here.agent(CLAUDE, transport=transport).open("s", store=here.store) as session:
            with pytest.raises(ProviderError):
                await session.run("one")
            session.use(there)
            with pytest.raises(ProviderError):
                await session.run("two")
    await client.aclose()
    assert asked == [("127.0.0.1", ""), ("api.openai.com", "Bearer key-of-another")]
