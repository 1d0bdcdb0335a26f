"""The transport with AWS's framing: what it asks for, and how it reads the answer."""

from __future__ import annotations

from typing import Any

import anyio.abc
import pytest

from addendum.errors import StreamBroken
from addendum.lab.aws_frames import frame
from addendum.wire.transport import ACCEPTED, Transport, WireRequest

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\n"


def answering(body: bytes) -> Any:
    async def script(server: Any, stream: anyio.abc.SocketStream) -> None:
        length = f"content-length: {len(body)}\r\n\r\n".encode()
        await stream.send(HEAD + length + body[:7])
        await stream.send(body[7:])

    return script


def request(url: str) -> WireRequest:
    headers = (("accept", ACCEPTED["aws"]),)
    return WireRequest(f"{url}/us.model-v1%3A0/converse-stream", headers, b"{}", framing="aws")


async def test_frames_become_events_and_the_encoded_path_goes_out_as_it_is(serve: Any) -> None:
    body = frame("messageStart", {"role": "assistant"}) + frame("messageStop", {"stopReason": "x"})
    async with serve(answering(body)) as server, Transport() as transport:
        async with transport.stream(request(server.url)) as reply:
            found = [event.event async for event in reply.events]
        assert found == ["messageStart", "messageStop"]
        assert b"POST /v1/x/us.model-v1%3A0/converse-stream HTTP/1.1" in server.heads[0]
        assert b"accept: application/vnd.amazon.eventstream" in server.heads[0]


async def test_a_stream_that_ends_within_a_frame_is_broken(serve: Any) -> None:
    body = frame("messageStart", {"role": "assistant"}) + frame("messageStop", {})[:-3]
    async with serve(answering(body)) as server, Transport() as transport:
        with pytest.raises(StreamBroken, match="cut in the middle"):
            async with transport.stream(request(server.url)) as reply:
                _ = [event async for event in reply.events]
