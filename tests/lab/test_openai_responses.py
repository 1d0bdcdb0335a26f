"""Responses over HTTP: streams, usage by boundaries worked out by hand, and the vendor's types."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from tests.lab.lab_requests import Json

from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Clock, Lab, open_lab
from addendum.wire.openai_responses.parse import ResponsesParser, parse_body
from addendum.wire.sse import SseParser

pytestmark = pytest.mark.anyio

MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
ROUTE = "openai:gpt-6.1-sol"


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(0.0)) as lab:
        yield lab


async def post(lab: Lab, items: Sequence[Json], *, key: str = "k", **more: Any) -> httpx2.Response:
    body = {"model": "gpt-6.1-sol", "store": False, "input": list(items), **more}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(trust_env=False) as client:
        url = lab.base_url("openai") + "/responses"
        return await client.post(url, json=body, headers=headers)


def message(role: str, tokens: int, letter: str = "x", **more: Any) -> Json:
    """A message that counts `tokens` tokens: its head `{}`, and one text part."""
    head = -(-(len(role) + 2) // 4)
    frame = len(role) + len('{"text":"","type":"input_text"}')
    written = letter * (4 * (tokens - head) - frame)
    part = {"type": "input_text", "text": written, **more}
    return {"type": "message", "role": role, "content": [part]}


def tools(tokens: int, name: str = "a") -> Json:
    head = -(-(len("developer") + 2) // 4)
    entry = {"type": "function", "name": name, "description": "", "parameters": {"type": "object"}}
    entry["strict"] = False
    frame = len("developer") + len(json.dumps(entry, separators=(",", ":")))
    entry["description"] = "d" * (4 * (tokens - head) - frame)
    return {"type": "additional_tools", "role": "developer", "tools": [entry]}


def figures(response: httpx2.Response) -> tuple[int, int, int]:
    """Read, written, and the rest."""
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    details = usage["input_tokens_details"]
    read, written = details["cached_tokens"], details["cache_write_tokens"]
    return read, written, usage["input_tokens"] - read - written


async def test_a_stream_says_what_the_body_says(lab: Lab) -> None:
    entry = Entry(text="so", thinking="hm", calls=(ScriptCall("a", {"q": "x" * 40}),))
    lab.script = Script((ScriptStep("x" * 5, (entry,)),))
    items = [tools(50), {"type": "message", "role": "user", "content": "x" * 5}]
    more = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    plain = parse_body((await post(lab, items, **more)).content)
    streamed = await post(lab, items, stream=True, **more)
    reader, parser = SseParser(), ResponsesParser()
    for event in reader.feed(streamed.content):
        assert event.event == json.loads(event.data)["type"]
        parser.feed(event)
    found = parser.finish()
    assert (found.text, found.reasoning) == ("so", "hm") == (plain.text, plain.reasoning)
    assert [call.arguments for call in found.calls] == [call.arguments for call in plain.calls]
    kinds = [json.loads(bytes(raw))["type"] for raw in found.native]
    assert kinds == ["reasoning", "message", "function_call"]


async def test_a_key_is_needed_and_two_keys_share_nothing(lab: Lab) -> None:
    assert (await post(lab, [message("user", 20)], key="")).status_code == 401
    items = [message("user", 2000)]
    assert figures(await post(lab, items)) == (0, 2000, 0)
    assert figures(await post(lab, items, key="other")) == (0, 2000, 0)
    assert figures(await post(lab, items, prompt_cache_key="k")) == (0, 2000, 0)
    assert figures(await post(lab, items)) == (2000, 0, 0)


async def test_an_item_behind_the_last_user_message_is_not_stored(lab: Lab) -> None:
    items = [message("developer", 1200), message("user", 300), tools(400)]
    assert figures(await post(lab, items)) == (0, 1500, 400)
    answer = {"type": "message", "role": "assistant", "content": "ok"}
    later = [*items, answer, message("user", 100)]
    read, written, rest = figures(await post(lab, later))
    assert (read, rest) == (1500, 0)
    assert written > 400 + 100  # the definitions are written now, with the answer


async def test_a_marked_notice_behind_it_stores_it_at_once(lab: Lab) -> None:
    notice = message("developer", 20, **MARK)
    items = [message("developer", 1200), message("user", 300), tools(400), notice]
    assert figures(await post(lab, items)) == (0, 1920, 0)
    answer = {"type": "message", "role": "assistant", "content": "ok"}
    later = [*items, answer, message("user", 100)]
    assert figures(await post(lab, later))[0] == 1920
    # Without the mark the place is not looked up: it is no boundary by itself.
    bare = [*items[:3], message("developer", 20), answer, message("user", 100)]
    assert figures(await post(lab, bare, prompt_cache_options={"mode": "implicit"}))[0] != 1920


async def test_the_head_as_an_item_is_stored_with_the_static_text(lab: Lab) -> None:
    static = message("developer", 900, **MARK)
    assert figures(await post(lab, [tools(600), static, message("user", 50)])) == (0, 1550, 0)
    other = [tools(600), static, message("user", 70, "y")]
    assert figures(await post(lab, other)) == (1500, 70, 0)


async def test_1024_tokens_are_stored_and_one_less_is_not(lab: Lab) -> None:
    for tokens, stored in ((1023, 0), (1024, 1024)):
        items = [message("user", tokens, str(tokens)[-1])]
        await post(lab, items)
        assert figures(await post(lab, items))[0] == stored


async def test_21_ends_later_only_a_mark_finds_the_prefix(lab: Lab) -> None:
    def later(**more: Any) -> list[Json]:
        rest = [message("user", 20, "abcdefghijklmnopqrstuvwxyz"[at]) for at in range(21)]
        return [message("user", 1100, **more), *rest]

    await post(lab, [message("user", 1100)])
    assert figures(await post(lab, later(**MARK)))[0] == 1100
    lab.clock.advance(3600.0)
    await post(lab, [message("user", 1100)])
    assert figures(await post(lab, later()))[0] == 0


async def test_bodies_and_events_have_the_vendors_types() -> None:
    types = pytest.importorskip("openai.types.responses")
    from openai.types.responses import response_create_params  # type: ignore[import-not-found]
    from pydantic import TypeAdapter  # type: ignore[import-not-found]

    asked = TypeAdapter(response_create_params.ResponseCreateParamsStreaming)
    item = TypeAdapter(types.ResponseInputItemParam)
    for route in (ROUTE, f"{ROUTE}+dispatch"):
        run = await run_scenario(find("redefine"), route)
        for capture in run.captures:
            body = json.loads(capture.body)
            assert set(asked.validate_python(body)) == set(body)
            for each in body["input"]:
                taken = item.validate_python(each)
                assert set(taken) == set(each)
                for value in taken.values():
                    # Lists are read, and so judged, only when they are gone through.
                    assert isinstance(value, str | dict) or list(value) is not None
    events = TypeAdapter(types.ResponseStreamEvent)
    async with open_lab() as lab:
        said = await post(lab, [message("user", 20)], stream=True)
        for event in SseParser().feed(said.content):
            value = json.loads(event.data)
            assert events.validate_python(value).type == value["type"]
