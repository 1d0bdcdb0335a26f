from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator

import pytest
from tests.lab.engine.engine_here import Json, needs_engine, relayed

from addendum import encoding
from addendum.lab.engine.model import CONTEXT
from addendum.lab.engine.relay import Relay, open_relay, question
from addendum.lab.engine.server import Engine, open_engine
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep

pytestmark = [pytest.mark.anyio, needs_engine]

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
SCRIPT = Script(
    (
        ScriptStep("hi", (Entry("Hello."),)),
        ScriptStep("look", (Entry(calls=(ScriptCall("look", {"q": "x"}),)), Entry("Seen."))),
        ScriptStep("x" * CONTEXT, (Entry("Long."),)),
    )
)


@pytest.fixture
async def engine() -> AsyncGenerator[Engine]:
    async with open_engine() as engine:
        yield engine


@pytest.fixture
async def relay(engine: Engine) -> AsyncGenerator[Relay]:
    async with open_relay(engine, SCRIPT) as relay:
        yield relay


def chat(text: str, **more: object) -> Json:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": text}]
    return {"model": "m", "tools": [tool], "messages": messages, **more}


def messages(text: str, **more: object) -> Json:
    tool = {"name": "look", "input_schema": {"type": "object"}}
    return {
        "model": "m",
        "max_tokens": 9,
        "tools": [tool],
        "messages": [{"role": "user", "content": text}],
        **more,
    }


async def test_the_script_speaks_and_the_engine_measures_on_chat(relay: Relay) -> None:
    first = (await relayed(relay, CHAT, chat("hi"))).json()
    again = (await relayed(relay, CHAT, chat("hi"))).json()
    assert first["choices"][0]["message"]["content"] == "Hello."
    assert [each["usage"] for each in (first, again)] == [each.usage for each in relay.measured]
    size = first["usage"]["prompt_tokens"]
    assert size > len(encoding.encode(chat("hi")["tools"]))
    assert again["usage"]["prompt_tokens_details"] == {"cached_tokens": size - 1}


async def test_the_script_speaks_and_the_engine_measures_on_messages(relay: Relay) -> None:
    first = (await relayed(relay, MESSAGES, messages("hi"))).json()
    again = (await relayed(relay, MESSAGES, messages("hi"))).json()
    assert first["content"] == [{"type": "text", "text": "Hello."}]
    assert first["stop_reason"] == "end_turn"
    assert [each["usage"] for each in (first, again)] == [each.usage for each in relay.measured]
    assert first["usage"]["cache_read_input_tokens"] == 0
    assert again["usage"]["cache_read_input_tokens"] == first["usage"]["input_tokens"] - 1


def responses(text: str, **more: object) -> Json:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"model": "m", "store": False, "tools": [tool], "input": [said], **more}


async def test_the_script_speaks_and_the_engine_measures_on_responses(relay: Relay) -> None:
    first = (await relayed(relay, RESPONSES, responses("hi"))).json()
    again = (await relayed(relay, RESPONSES, responses("hi"))).json()
    assert first["output"][0]["content"][0]["text"] == "Hello."
    assert [each["usage"] for each in (first, again)] == [each.usage for each in relay.measured]
    size = first["usage"]["input_tokens"]
    assert again["usage"]["input_tokens_details"] == {"cached_tokens": size - 1}
    called = (await relayed(relay, RESPONSES, responses("look"))).json()["output"][0]
    assert (called["name"], called["arguments"]) == ("look", '{"q":"x"}')
    assert question(responses("hi"))["max_output_tokens"] == 1


async def test_calls_are_made_as_the_script_has_them(relay: Relay) -> None:
    one = (await relayed(relay, CHAT, chat("look"))).json()["choices"][0]["message"]
    assert one["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"q":"x"}'}
    other = (await relayed(relay, MESSAGES, messages("look"))).json()
    assert other["stop_reason"] == "tool_use"
    assert other["content"][0]["input"] == {"q": "x"}


async def test_answers_stream_with_the_engines_usage(relay: Relay) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = (await relayed(relay, CHAT, chat("hi", **options))).text.split("\n\n")
    last = encoding.decode(events[-3].removeprefix("data: "))
    assert last["usage"] == relay.measured[-1].usage
    assert events[-2] == "data: [DONE]"
    streamed = (await relayed(relay, MESSAGES, messages("hi", stream=True))).text
    assert '"input_tokens":' in streamed
    assert streamed.rstrip().endswith('data: {"type":"message_stop"}')


async def test_what_no_script_answers_is_refused_before_the_engine_is_asked(relay: Relay) -> None:
    asked = ((CHAT, chat("hm")), (MESSAGES, messages("hm")), (RESPONSES, responses("hm")))
    for path, body in asked:
        answer = await relayed(relay, path, body)
        assert (answer.status_code, "no user text" in answer.text) == (400, True)
    assert relay.measured == []


async def test_what_the_lab_would_not_take_is_refused(relay: Relay) -> None:
    for path, make in ((CHAT, chat), (MESSAGES, messages), (RESPONSES, responses)):
        body = make("hi", unknown=1)
        answer = await relayed(relay, path, body)
        assert (answer.status_code, "unknown" in answer.text) == (400, True)
    assert relay.measured == []


async def test_a_refusal_of_the_engine_is_passed_on(relay: Relay) -> None:
    answer = await relayed(relay, CHAT, chat("x" * CONTEXT))
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "exceed_context_size_error"
    assert relay.measured == []


async def test_an_engine_that_has_ended_is_told_of(engine: Engine, relay: Relay) -> None:
    os.kill(engine.pid, signal.SIGKILL)
    answer = await relayed(relay, CHAT, chat("hi"))
    assert answer.status_code == 502
    assert "does not answer any more" in answer.text


def test_the_engine_is_asked_for_the_same_prompt_and_one_token() -> None:
    body = chat("hi", stream=True, stream_options={"include_usage": True}, max_tokens=400)
    asked = question(body)
    assert {key: asked[key] for key in ("tools", "messages")} == {
        key: body[key] for key in ("tools", "messages")
    }
    assert (asked["stream"], asked["max_tokens"]) == (False, 1)
    assert "stream_options" not in asked
