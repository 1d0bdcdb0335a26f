"""The lab over HTTP: addresses, captures, faults, streams, and a clean end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from tests.lab.lab_requests import Json, assistant, chat, claude, deepseek, result, tool, user

from addendum import encoding
from addendum.errors import ConfigurationError
from addendum.lab import server
from addendum.lab.script import Entry, Script, ScriptCall, ScriptStep
from addendum.lab.server import Clock, Lab, open_lab

pytestmark = pytest.mark.anyio

SCRIPT = Script(
    (
        ScriptStep(
            "go",
            (
                Entry(
                    "a text that is long enough for several pieces",
                    thinking="some thoughts, also longer than one piece",
                    calls=(ScriptCall("a", {"q": "a value", "deep": {"n": [1, 2]}}),),
                ),
                Entry("done"),
            ),
        ),
    )
)
HI: Json = {"messages": [user("hi")]}
CHAT: Json = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with open_lab(clock=Clock(5.0)) as lab:
        yield lab


async def test_addresses(lab: Lab) -> None:
    assert lab.url.startswith("http://127.0.0.1:")
    assert lab.base_url("anthropic") == f"{lab.url}/anthropic"
    assert lab.base_url("deepseek") == f"{lab.url}/deepseek/anthropic"
    assert lab.base_url("openai-chat") == f"{lab.url}/openai/v1"
    assert lab.base_url("compatible") == f"{lab.url}/compatible/v1"
    with pytest.raises(ConfigurationError, match="no provider 'nobody'; `addendum lab` lists"):
        lab.base_url("nobody")
    async with httpx2.AsyncClient() as client:
        listed = await client.get(lab.url)
        assert listed.json()["openai-chat"] == "/openai/v1"
        assert (await client.post(f"{lab.url}/anthropic/v1/complete")).status_code == 404


async def test_every_request_is_captured_without_secrets(lab: Lab) -> None:
    await claude(lab, HI, key="very-secret", betas="x-2026")
    await chat(lab, CHAT, key="very-secret")
    await claude(lab, {"messages": []})
    first, second, third = lab.captures
    assert [each.n for each in lab.captures] == [0, 1, 2]
    assert (first.provider, first.path) == ("anthropic", "/anthropic/v1/messages")
    assert (second.provider, second.path) == ("openai-chat", "/openai/v1/chat/completions")
    assert encoding.decode(first.body)["messages"] == HI["messages"]
    assert first.headers["anthropic-beta"] == "x-2026"
    assert (first.status, first.time, first.refusal) == (200, 5.0, None)
    assert first.usage["input_tokens"] > 0
    assert second.usage["prompt_tokens"] > 0
    assert (third.status, third.usage) == (400, {})
    assert third.refusal is not None
    assert b"very-secret" not in encoding.encode(lab.captures[:2])


async def test_a_body_that_is_no_json_object(lab: Lab) -> None:
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01", "authorization": "Bearer k"}
    async with httpx2.AsyncClient() as client:
        for path in ("/anthropic/v1/messages", "/openai/v1/chat/completions"):
            for body in (b"{", b"[]", b"\xff"):
                response = await client.post(lab.url + path, content=body, headers=headers)
                assert response.status_code == 400
                assert "error" in response.json()


async def test_a_script_error_says_which_text_it_has_not(lab: Lab) -> None:
    lab.script = SCRIPT
    for response in (
        await claude(lab, HI),
        await deepseek(lab, HI),
        await chat(lab, CHAT),
        await chat(lab, CHAT, provider="compatible"),
    ):
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["type"] == "lab_script_error"
        assert "'hi'" in error["message"]


# --- the Anthropic stream ---------------------------------------------------------------------


def events(text: str) -> list[Json]:
    found: list[Json] = []
    for event in text.split("\n\n"):
        if event:
            name, data = event.split("\n")
            value = encoding.decode(data.removeprefix("data: "))
            assert name == f"event: {value['type']}"
            found.append(value)
    return found


def assembled(stream: list[Json]) -> list[Json]:
    blocks: list[Json] = []
    for event in stream:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    assert block["signature"] == ""
                    block["signature"] = delta["signature"]
                case _:
                    block["json"] += delta["partial_json"]
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = encoding.decode(text)
    return blocks


@pytest.mark.parametrize("post", [claude, deepseek])
async def test_a_stream_carries_the_same_message_in_pieces(lab: Lab, post: Any) -> None:
    lab.script = SCRIPT
    body: Json = {
        "messages": [user("go")],
        "tools": [tool("a")],
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
    }
    whole = (await post(lab, body)).json()
    assert whole["stop_reason"] == "tool_use"
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
    response = await post(lab, body, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    stream = events(response.text)
    kinds = [event["type"] for event in stream]
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    blocks = assembled(stream)
    assert blocks[0]["thinking"] == whole["content"][0]["thinking"]
    assert blocks[1] == whole["content"][1]
    assert blocks[2]["input"] == {"q": "a value", "deep": {"n": [1, 2]}}
    deltas = [event["delta"]["type"] for event in stream if event["type"] == "content_block_delta"]
    assert deltas.count("signature_delta") == 1
    for kind in ("text_delta", "thinking_delta", "input_json_delta"):
        assert deltas.count(kind) > 1
    start, end = stream[0]["message"]["usage"], stream[-2]["usage"]
    assert stream[-2]["delta"]["stop_reason"] == "tool_use"
    assert {**start, "output_tokens": 0} == {**end, "output_tokens": 0}
    assert end["output_tokens"] == whole["usage"]["output_tokens"] > start["output_tokens"]
    assert lab.captures[-1].usage == end
    call = whole["content"][2]
    body["messages"] += [assistant(*whole["content"]), user(result(call["id"]))]
    done = (await post(lab, body)).json()
    assert (done["content"][-1]["text"], done["stop_reason"]) == ("done", "end_turn")


async def test_equal_requests_get_equal_ids_and_others_do_not(lab: Lab) -> None:
    lab.script = SCRIPT
    body: Json = {"messages": [user("go")], "tools": [tool("a")]}

    async def call_id(**more: Any) -> str:
        return (await claude(lab, {**body, **more})).json()["content"][-1]["id"]

    first = await call_id()
    assert first == await call_id()
    assert first != await call_id(max_tokens=99)


# --- faults -----------------------------------------------------------------------------------


async def test_the_next_requests_fail_as_asked(lab: Lab) -> None:
    lab.fail_next("anthropic", retry_after=2.5, times=2)
    for _ in range(2):
        response = await claude(lab, HI)
        assert response.status_code == 429
        assert response.headers["retry-after"] == "2.5"
        assert response.json()["error"]["type"] == "rate_limit_error"
    assert (await claude(lab, HI)).status_code == 200
    lab.fail_next("openai-chat", status=503, body=b"<html>busy</html>")
    response = await chat(lab, CHAT)
    assert (response.status_code, response.content) == (503, b"<html>busy</html>")
    assert [each.status for each in lab.captures] == [429, 429, 200, 503]


async def test_a_fault_hits_its_provider_only(lab: Lab) -> None:
    lab.fail_next("deepseek", status=500)
    assert (await claude(lab, HI)).status_code == 200
    response = await deepseek(lab, HI)
    assert (response.status_code, response.json()["error"]["type"]) == (500, "api_error")
    with pytest.raises(ConfigurationError):
        lab.fail_next("nobody")


@pytest.mark.parametrize("after", [0, 3])
async def test_a_stream_is_cut(lab: Lab, after: int) -> None:
    lab.cut_next("anthropic", after_events=after)
    seen = b""
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with stream(client, lab) as response:
                assert response.status_code == 200
                async for part in response.aiter_bytes():
                    seen += part
    assert seen.count(b"event: ") == after
    assert b"message_stop" in (await claude(lab, HI, stream=True)).content


async def test_a_stream_stalls_until_it_is_released(lab: Lab) -> None:
    lab.stall_next("anthropic", after_events=2)
    async with httpx2.AsyncClient() as client, stream(client, lab) as response:
        parts = response.aiter_bytes()
        seen = b""
        while seen.count(b"\n\n") < 2:
            seen += await anext(parts)
        await lab.until_stalled()
        assert b"content_block_start" not in seen
        lab.release()
        async for part in parts:
            seen += part
        assert b"message_stop" in seen


def stream(client: httpx2.AsyncClient, lab: Lab) -> Any:
    body = {"model": "claude-opus-5", "max_tokens": 9, "stream": True, **HI}
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    return client.stream(
        "POST", lab.base_url("anthropic") + "/v1/messages", json=body, headers=headers
    )


# --- the server's life ------------------------------------------------------------------------


async def held_open(client: httpx2.AsyncClient, lab: Lab) -> httpx2.Response:
    body = {"model": "claude-opus-5", "max_tokens": 9, "stream": True, **HI}
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    url = lab.base_url("anthropic") + "/v1/messages"
    request = client.build_request("POST", url, json=body, headers=headers)
    return await client.send(request, stream=True)


async def test_a_stalled_stream_does_not_keep_the_lab_open() -> None:
    with anyio.fail_after(10):
        async with httpx2.AsyncClient() as client:
            async with open_lab() as lab:
                lab.stall_next("anthropic", times=2)
                held = await held_open(client, lab)
                await lab.until_stalled()
            await held.aclose()
            with pytest.raises(httpx2.ConnectError):
                await client.get(lab.url)


async def test_a_client_that_does_not_read_does_not_keep_the_lab_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.05)
    long = Script((ScriptStep("hi", (Entry("x" * 1_000_000),)),))
    with anyio.fail_after(10):
        async with httpx2.AsyncClient() as client:
            async with open_lab(long) as lab:
                held = await held_open(client, lab)
            with pytest.raises(httpx2.RemoteProtocolError):
                await held.aread()
            await held.aclose()


async def test_a_client_that_goes_away_is_no_error(lab: Lab) -> None:
    lab.stall_next("anthropic")
    async with httpx2.AsyncClient() as client:
        async with stream(client, lab):
            await lab.until_stalled()
    assert (await claude(lab, HI)).status_code == 200


async def test_labs_share_no_cache_and_a_port_can_be_taken_again() -> None:
    async with open_lab() as first:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port} .*choose another port"):
            async with open_lab(port=port):
                pass
        assert (await claude(first, HI)).status_code == 200
    async with open_lab(port=port) as second:
        assert second.url == first.url
        assert second.captures == []


async def test_an_error_inside_the_context_closes_the_lab() -> None:
    url = ""
    with contextlib.suppress(ZeroDivisionError):
        async with open_lab() as lab:
            url = lab.url
            raise ZeroDivisionError
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(url)


async def test_a_lab_that_is_cancelled_closes() -> None:
    with anyio.CancelScope() as scope:
        async with open_lab() as lab:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(lab.url)


def test_the_clock_runs_until_it_is_set() -> None:
    clock = Clock()
    assert abs(clock.now() - time.time()) < 5
    clock.set(10.0)
    clock.advance(2.5)
    assert clock.now() == 12.5
