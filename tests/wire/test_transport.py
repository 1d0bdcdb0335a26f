from __future__ import annotations

import asyncio
import email.utils
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import httpx2
import msgspec
import pytest

from addendum.errors import ConfigurationError, ProviderBusy, ProviderRefused, StreamBroken
from addendum.wire.transport import (
    Framing,
    Retry,
    SseEvent,
    Transport,
    TransportSettings,
    WireRequest,
    refusal_text,
)

pytestmark = pytest.mark.anyio

SECRET = "sk-secret-0123456789"
Serve = Callable[..., Any]


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    kind = "text/event-stream" if status.startswith("200") else "application/json"
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def chunked(*parts: bytes, end: bool = True) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head + framed + (b"0\r\n\r\n" if end else b"")


def saying(*answers: bytes | None) -> Callable[..., Awaitable[bool]]:
    """Answer the n-th request with the n-th text, the last one for ever; None hangs up."""

    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        answer = answers[min(len(server.bodies), len(answers)) - 1]
        if answer is None:
            return False
        await stream.send(answer)
        # An unfinished chunked answer is cut here.
        return answer.endswith(b"0\r\n\r\n") or b"content-length" in answer

    return script


def request(url: str, body: bytes = b"{}", **more: Any) -> WireRequest:
    return WireRequest(url, (("x-api-key", SECRET),), body, **more)


class Slept:
    """A sleep that only notes how long it was asked for."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.times.append(seconds)


def transport(slept: Slept | None = None, **more: Any) -> Transport:
    return Transport(sleep=slept or Slept(), jitter=lambda: 1.0, **more)


async def events(wire: Transport, sent: WireRequest, **more: Any) -> list[SseEvent]:
    async with wire.stream(sent, **more) as reply:
        return [event async for event in reply.events]


OK = response(b"data: 1\n\n")


async def test_the_body_leaves_as_it_is_and_the_connection_is_kept(serve: Serve) -> None:
    body = '{"k": "é \\u00e9",  "n":1.0}'.encode()
    async with serve(saying(chunked(b"event: a\nda", b"ta: 1\n\ndata: 2\n\n"))) as server:
        async with transport() as wire:
            for _ in range(2):
                async with wire.stream(request(server.url, body)) as reply:
                    assert reply.status == 200
                    assert reply.headers["content-type"] == "text/event-stream"
                    got = [event async for event in reply.events]
                assert got == [SseEvent("a", b"1"), SseEvent(None, b"2")]
        assert server.bodies == [body, body]
        assert server.connections == 1
        assert b"accept: text/event-stream" in server.heads[0]
        assert b"accept-encoding: identity" in server.heads[0]
        assert SECRET.encode() in server.heads[0]


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("retry-after: 3", 3.0),
        ("retry-after-ms: 250", 0.25),
        ("retry-after: 0.5\r\nretry-after-ms: 1500", 1.5),
        ("retry-after: 60", 60.0),
        ("retry-after: " + email.utils.formatdate(1_000_007, usegmt=True), 7.0),
        ("retry-after: " + email.utils.formatdate(900_000, usegmt=True), 0.0),
        ("retry-after: nan", 0.5),
        ("retry-after: -1", 0.5),
        ("retry-after: soon", 0.5),
        ("x-other: 1", 0.5),
    ],
)
async def test_a_wait_that_the_provider_asks_for_is_kept(
    serve: Serve, header: str, wait: float
) -> None:
    slept, told = Slept(), list[Retry]()
    busy = response(b'{"error":{"type":"rate_limit_error"}}', "429 Slow down", header)
    async with (
        serve(saying(busy, OK)) as server,
        transport(slept, clock=lambda: 1_000_000.0) as wire,
    ):
        got = await events(wire, request(server.url), on_retry=told.append)
    assert got == [SseEvent(None, b"1")]
    assert slept.times == [wait]
    assert [(retry.attempt, retry.delay, retry.error.status) for retry in told] == [(1, wait, 429)]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_busy_after_the_retries(serve: Serve, status: int) -> None:
    slept = Slept()
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    async with serve(saying(response(body, f"{status} X"))) as server, transport(slept) as wire:
        with pytest.raises(ProviderBusy) as caught:
            await events(wire, request(server.url))
        assert len(server.bodies) == 3
    assert slept.times == [0.5, 1.0]
    assert (caught.value.status, caught.value.code) == (status, "overloaded_error")
    assert f"answered {status} (overloaded_error), 3 times: Overloaded; wait" in str(caught.value)


async def test_waits_double_to_a_limit_with_jitter(serve: Serve) -> None:
    slept, settings = Slept(), TransportSettings(retries=6)
    async with (
        serve(saying(response(b"", "500 X"))) as server,
        Transport(settings, sleep=slept, jitter=lambda: 0.0) as wire,
    ):
        with pytest.raises(ProviderBusy):
            await events(wire, request(server.url))
    assert slept.times == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0]


async def test_a_provider_can_forbid_the_retry(serve: Serve) -> None:
    busy = response(b'{"error":{"code":"rate_limit_exceeded"}}', "429 X", "x-should-retry: false")
    async with serve(saying(busy)) as server, transport() as wire:
        with pytest.raises(ProviderBusy) as caught:
            await events(wire, request(server.url))
        assert len(server.bodies) == 1
    assert caught.value.code == "rate_limit_exceeded"


async def test_a_refusal_is_not_sent_again_and_keeps_its_text(serve: Serve) -> None:
    body = (
        b'{"type":"error","error":{"type":"invalid_request_error","message":"messages.3:\\n\\u001b[31m'
        b'tool_addition is not declared","details":{"error_code":"tool_reference_unresolved"}}}'
    )
    async with serve(saying(response(body, "400 Bad"))) as server, transport() as wire:
        with pytest.raises(ProviderRefused) as caught:
            await events(wire, request(server.url))
        assert len(server.bodies) == 1
    assert (caught.value.status, caught.value.code) == (400, "tool_reference_unresolved")
    assert str(caught.value).endswith(
        "answered 400 (tool_reference_unresolved): messages.3: \ufffd[31mtool_addition is not "
        "declared; correct what it names before sending it again"
    )
    assert "tool_addition" in refusal_text(caught.value)


async def test_secrets_do_not_come_back_in_errors(serve: Serve) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: %s"}}' % SECRET.encode()
    async with serve(saying(response(body, "401 No"))) as server, transport() as wire:
        with pytest.raises(ProviderRefused) as caught:
            await events(wire, request(server.url + "?key=" + SECRET, credential="SOME_API_KEY"))
    shown = "".join(traceback.format_exception(caught.value)) + refusal_text(caught.value)
    assert SECRET not in shown
    assert "[redacted]; check the key in SOME_API_KEY" in str(caught.value)


def test_a_request_does_not_show_its_headers() -> None:
    sent = request("https://user:pw@host.example/x?key=" + SECRET)
    assert repr(sent) == "WireRequest('host.example', 2 bytes)"
    assert SECRET not in str(sent.__rich_repr__())


@pytest.mark.parametrize("value", [SECRET + "\n", " " + SECRET, SECRET + "\r\nx: y", "schlüssel"])
async def test_a_header_that_http_refuses_is_not_quoted(value: str) -> None:
    sent = WireRequest("http://127.0.0.1:9/", (("x-api-key", value),), b"", "SOME_API_KEY")
    async with transport() as wire:
        with pytest.raises(ConfigurationError) as caught:
            await events(wire, sent)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "x-api-key" in str(caught.value) and "SOME_API_KEY" in str(caught.value)


@pytest.mark.parametrize("url", ["", "api.example.com/v1", "ftp://x/", "http://", "http://[::1"])
async def test_an_address_that_is_none(url: str) -> None:
    async with transport() as wire:
        with pytest.raises(ConfigurationError, match="base URL"):
            await events(wire, request(url))


async def test_no_connection(serve: Serve) -> None:
    async with serve(saying(OK)) as server:
        url = server.url
    slept = Slept()
    async with transport(slept) as wire:
        with pytest.raises(StreamBroken, match=r"3 times.*ConnectError.*check the network"):
            await events(wire, request(url))
    assert slept.times == [0.5, 1.0]


@pytest.mark.parametrize("first", [None, chunked(end=False), chunked(b": waiting\n\n", end=False)])
async def test_a_connection_that_breaks_before_the_first_event_is_tried_again(
    serve: Serve, first: bytes | None
) -> None:
    slept = Slept()
    async with serve(saying(first, OK)) as server, transport(slept) as wire:
        assert await events(wire, request(server.url)) == [SseEvent(None, b"1")]
        assert len(server.bodies) == 2
    assert slept.times == [0.5]


async def test_a_cut_after_the_first_event_is_not_tried_again(serve: Serve) -> None:
    got: list[SseEvent] = []
    async with serve(saying(chunked(b"data: 1\n\ndata: 2", end=False))) as server:
        async with transport() as wire:
            with pytest.raises(StreamBroken, match="broke in mid-answer"):
                async with wire.stream(request(server.url)) as reply:
                    async for event in reply.events:
                        got.append(event)
        assert len(server.bodies) == 1
    assert got == [SseEvent(None, b"1")]


async def test_silence_is_not_tried_again(serve: Serve) -> None:
    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        return await server.until_closed(stream)

    async with serve(script) as server, transport(settings=TransportSettings(read=0.05)) as wire:
        with pytest.raises(StreamBroken, match="silent"):
            await events(wire, request(server.url))
        assert len(server.bodies) == 1


async def test_an_event_of_twenty_megabytes(serve: Serve) -> None:
    data = b'{"t":"' + b"x" * 20_000_000 + b'"}'
    async with serve(saying(chunked(b"data: " + data + b"\n\n"))) as server, transport() as wire:
        (event,) = await events(wire, request(server.url))
    assert event.data == data


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (TransportSettings(max_event=1000), "1,000 bytes"),
        (TransportSettings(max_answer=1000), "max_answer"),
    ],
)
async def test_limits_break_the_stream(
    serve: Serve, settings: TransportSettings, limit: str
) -> None:
    answer = chunked(b"data: 1\n\n", b"data: " + b"x" * 1000 + b"\n\n")
    async with serve(saying(answer, OK)) as server, transport(settings=settings) as wire:
        with pytest.raises(StreamBroken, match=limit):
            await events(wire, request(server.url))
        assert await events(wire, request(server.url)) == [SseEvent(None, b"1")]


async def test_cancelling_closes_the_response_and_leaves_the_client_usable(serve: Serve) -> None:
    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        if len(server.bodies) > 1:
            await stream.send(OK)
            return True
        await stream.send(chunked(b"data: 1\n\n", end=False))
        return await server.until_closed(stream)

    got = anyio.Event()
    async with serve(script) as server, transport() as wire:

        async def read() -> None:
            async with wire.stream(request(server.url)) as reply:
                async for _ in reply.events:
                    got.set()

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await got.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(5):
            await server.closed.wait()
        assert await events(wire, request(server.url)) == [SseEvent(None, b"1")]


async def test_cancelling_a_plain_task(serve: Serve) -> None:
    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        await stream.send(chunked(b"data: 1\n\n", end=False))
        return await server.until_closed(stream)

    got = asyncio.Event()
    async with serve(script) as server, transport() as wire:

        async def read() -> None:
            async with wire.stream(request(server.url)) as reply:
                async for _ in reply.events:
                    got.set()

        task = asyncio.create_task(read())
        await got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with anyio.fail_after(5):
            await server.closed.wait()


async def test_cancelling_while_nothing_has_come(serve: Serve) -> None:
    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        if len(server.bodies) > 1:
            await stream.send(OK)
            return True
        asked.set()
        return await server.until_closed(stream)

    asked = anyio.Event()
    async with serve(script) as server, transport() as wire:
        async with anyio.create_task_group() as group:
            group.start_soon(events, wire, request(server.url))
            await asked.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(5):
            await server.closed.wait()
        assert await events(wire, request(server.url)) == [SseEvent(None, b"1")]


async def test_leaving_early_closes_the_response(serve: Serve) -> None:
    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        await stream.send(chunked(b"data: 1\n\n", end=False))
        return await server.until_closed(stream)

    async with serve(script) as server, transport() as wire:
        async with wire.stream(request(server.url)) as reply:
            assert await anext(aiter(reply.events)) == SseEvent(None, b"1")
        with anyio.fail_after(5):
            await server.closed.wait()
        assert [event async for event in reply.events] == []


async def test_many_at_once(serve: Serve) -> None:
    counts: list[int] = []
    everybody = anyio.Event()

    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        if len(server.bodies) == 120:
            everybody.set()
        await everybody.wait()
        await stream.send(chunked(b"data: 1\n\n", b"data: 2\n\n"))
        return True

    async with serve(script) as server, transport() as wire:

        async def read() -> None:
            counts.append(len(await events(wire, request(server.url))))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for _ in range(120):
                    group.start_soon(read)
    assert counts == [2] * 120


async def test_a_page_is_no_answer(serve: Serve) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n"
    async with serve(saying(head + b"<html>")) as server, transport() as wire:
        with pytest.raises(StreamBroken, match=r"instead of an event stream.*check the base URL"):
            await events(wire, request(server.url))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":1}', [b'{"a":1}']),
        (b' \n\n{"a":\n\n1}\n', [b'{"a":\n\n1}']),
        (b'[{"a":1},\n{"a":2}]', [b'{"a":1}', b'{"a":2}']),
        (b'{"a":1', [b'{"a":1']),
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}', b"[DONE]"]),
        (b': wait\n\nevent: x\ndata: {"a":1}\n\n', [b'{"a":1}']),
    ],
)
@pytest.mark.parametrize("framing", ["sse", "aws"])
async def test_a_body_of_json_is_an_event(
    serve: Serve, body: bytes, expected: list[bytes], framing: Framing
) -> None:
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\n"
    answer = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    async with serve(saying(answer)) as server, transport() as wire:
        sent = msgspec.structs.replace(request(server.url), framing=framing)
        assert [event.data for event in await events(wire, sent)] == expected


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream", "x/y"])
@pytest.mark.parametrize("body", [b"", b"upstream\nsaid no", b"<p>no</p>", b"[]", b": no\n\n"])
async def test_an_answer_without_an_event_says_how_it_begins(
    serve: Serve, kind: str, body: bytes
) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    if body == b"[]" and kind != "application/json":
        return  # Data that says nothing, but data.
    slept = Slept()
    async with serve(saying(head.encode() + body, OK)) as server, transport(slept) as wire:
        assert await events(wire, request(server.url)) == [SseEvent(None, b"1")]
    async with serve(saying(head.encode() + body)) as server, transport(slept) as wire:
        with pytest.raises(StreamBroken, match="answered without an event") as caught:
            await events(wire, request(server.url))
        assert len(server.bodies) == 3
    assert " ".join(body.decode().split()) in str(caught.value)


async def test_a_redirect_is_not_followed(serve: Serve) -> None:
    moved = response(b"", "307 Moved", "location: http://elsewhere.invalid/")
    async with serve(saying(moved)) as server, transport() as wire:
        with pytest.raises(ProviderRefused, match="answered 307; set the base URL"):
            await events(wire, request(server.url))
        assert len(server.bodies) == 1


async def test_a_proxy_of_the_environment_is_not_for_this_machine(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with serve(saying(OK)) as server, transport() as wire:
        assert await events(wire, request(server.url)) == [SseEvent(None, b"1")]


async def test_a_given_client_is_used_and_left_open() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        head = {"content-type": "text/event-stream", "content-encoding": "gzip"}
        return httpx2.Response(200, headers=head, stream=Broken())

    class Broken(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            yield b"no gzip"

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        async with transport(client=client) as wire:
            with pytest.raises(StreamBroken, match="cannot be decompressed"):
                await events(wire, request("http://provider.example/"))
        assert not client.is_closed


async def test_an_error_body_is_read_to_a_limit(serve: Serve) -> None:
    big = response(b"<html>" + b"x" * 5_000_000, "400 Bad")
    async with serve(saying(big)) as server, transport() as wire:
        with pytest.raises(ProviderRefused) as caught:
            await events(wire, request(server.url))
    assert len(str(caught.value)) < 700
    assert len(refusal_text(caught.value)) == 16 * 1024


async def test_an_error_body_without_end_is_left(serve: Serve) -> None:
    async def script(server: Any, stream: anyio.abc.SocketStream) -> bool:
        await stream.send(b"HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await stream.send(b"400\r\n" + b"x" * 1024 + b"\r\n")

    async with serve(script) as server, transport() as wire:
        with anyio.fail_after(10), pytest.raises(ProviderRefused, match="answered 400: xxx"):
            await events(wire, request(server.url))
