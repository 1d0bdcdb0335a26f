"""Errors wherever they stand, and when a request is sent again: one classifier, one rule.

Reports: maximhq/bifrost#5963, openclaw/clawrouter#101, a2aproject/a2a-rs#197 (JSON at 200);
byte5ai/omadia#122, router-for-me/CLIProxyAPI#2712, Alcova-AI/adk-anthropic-go#32 (the first event
is an error); gethouston/houston#1497, agno-agi/agno#5628 (a malformed call);
2389-research/tracker#547, NousResearch/hermes-agent#36276 (what is spent is sent again);
1jehuang/jcode#1183, dhkts1/teamclaude-rs#313 (a wait of hours).
"""

from __future__ import annotations

import email.utils
import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import httpx2
import pytest
from tests.wire.wires import (
    CHAT,
    CHAT_USAGE,
    CONVERSE,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEAKERS,
    Speaker,
    called,
    chat_chunk,
    encoded,
    said,
    thought,
)

from addendum.agent.context.sending import Sending, send
from addendum.errors import ProviderBusy, ProviderError, ProviderRefused, StreamBroken
from addendum.lab.aws_frames import frame
from addendum.wire.answer import Answer
from addendum.wire.apis import WIRES
from addendum.wire.refusal import http_error, stream_error
from addendum.wire.transport import Retry, Transport, TransportSettings, WireRequest

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
SSE = "text/event-stream"
NOW = 1_796_083_200.0
"""The first of December 2026."""

AWS = "application/vnd.amazon.eventstream"


def framed(speaker: Speaker, events: Sequence[Any]) -> tuple[str, bytes]:
    """Return events as their wire frames them."""
    if speaker is not CONVERSE:
        return SSE, encoded(events)
    parts: list[bytes] = []
    for name, data in events:
        if name == "exception":
            inner = data["error"]
            parts.append(frame(inner["type"], {"message": inner["message"]}, kind="exception"))
        else:
            parts.append(frame(name, data))
    return AWS, b"".join(parts)


class Exchange:
    """A provider that gives these answers, and what came of a request to it."""

    def __init__(self, speaker: Speaker, *answers: tuple[Any, ...], **settings: Any) -> None:
        self.speaker = speaker
        self.requests = 0
        self.slept: list[float] = []
        self.retries: list[Retry] = []
        self.deltas: list[Any] = []
        self._answers = answers
        self._settings = settings

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        media, body, *more = self._answers[min(self.requests, len(self._answers) - 1)]
        status, headers = (*more, *(200, {})[len(more) :])
        self.requests += 1
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        raw.append((b"content-type", media.encode()))
        return httpx2.Response(status, headers=raw, content=body)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def run(self) -> Answer:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._handle))
        transport = Transport(
            TransportSettings(**self._settings),
            client=client,
            sleep=self._sleep,
            jitter=lambda: 1.0,
            clock=lambda: NOW,
        )
        api = WIRES[self.speaker.wire]
        request = WireRequest("http://provider.example/x", (), b"{}", framing=api.framing)
        sending = Sending(transport, api, request, on_retry=self.retries.append)
        async with client, aclosing(sending.pieces()) as pieces:
            async for deltas in pieces:
                self.deltas += deltas
        return sending.answer


def good(speaker: Speaker, text: str = "ok") -> tuple[str, bytes]:
    return framed(speaker, speaker.stream([said(text)], speaker.whole[1]))


by_wire = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda each: each.wire)
BUSY = {
    MESSAGES: "overloaded_error",
    CHAT: "server_error",
    RESPONSES: "server_is_overloaded",
    CONVERSE: "throttlingException",
    GEMINI: "UNAVAILABLE",
}
REFUSED = {
    MESSAGES: "invalid_request_error",
    CHAT: "invalid_request_error",
    RESPONSES: "invalid_prompt",
    CONVERSE: "validationException",
}
SPENT = "You exceeded your current quota, please check your plan and billing details"


# -- where an error may stand -------------------------------------------------------------------


def places(speaker: Speaker, code: str, text: str) -> dict[str, tuple[Any, ...]]:
    """Return answers that report an error before anything was said."""
    error = speaker.error(code, text)
    begun = speaker.stream([], None)
    data = error[1]
    plain = json.dumps(data).encode()
    found: dict[str, tuple[Any, ...]] = {
        "the first event": framed(speaker, [error]),
        "behind what begins": framed(speaker, [*begun, error]),
        "a body of JSON": ("application/json", plain),
    }
    if speaker is not CONVERSE:
        found |= {
            "a line of JSON in a stream": (SSE, plain),
            "a line of JSON without an end": (SSE, plain + b"\n"),
            "JSON over several lines": (SSE, json.dumps(data, indent=2).encode()),
            "JSON behind a comment": (SSE, b": wait\n\n" + plain + b"\n\n"),
            "a stream that says it is JSON": ("application/json", encoded([error])),
            "a list of one": ("application/json", b"[" + plain + b"]"),
        }
    if speaker is RESPONSES:
        failed = {"id": "r", "status": "failed", "error": {"code": code, "message": text}}
        event = {"type": "response.failed", "response": failed}
        found["a response that failed"] = framed(speaker, [*begun, (None, event)])
        found["a body that failed"] = ("application/json", json.dumps({**failed, "output": []}))
    if speaker is CHAT:
        inner = {"error": {"code": 502, "message": text}}
        choice = {"index": 0, "delta": {}, "finish_reason": "error", **inner}
        found["in a choice"] = framed(speaker, [(None, {"choices": [choice]})])
        found["beside a choice"] = framed(speaker, [(None, {**chat_chunk({}, "error"), **inner})])
        found["groq, beside"] = framed(speaker, [(None, chat_chunk({}, x_groq={"error": text}))])
    return found


EVERY_PLACE = [
    pytest.param(speaker, place, id=f"{speaker.wire}-{place}")
    for speaker in SPEAKERS
    for place in places(speaker, BUSY[speaker], "x")
]


@pytest.mark.parametrize(("speaker", "place"), EVERY_PLACE)
async def test_trouble_is_tried_again_wherever_it_stands(speaker: Speaker, place: str) -> None:
    answer = places(speaker, BUSY[speaker], "too much going on")[place]
    here = Exchange(speaker, answer, good(speaker))
    assert (await here.run()).text == "ok"
    assert (here.requests, here.slept) == (2, [0.5])
    assert "too much going on" in str(here.retries[0].error)
    always = Exchange(speaker, answer)
    with pytest.raises(ProviderBusy, match=r"too much going on; wait and try again"):
        await always.run()
    assert (always.requests, always.slept) == (3, [0.5, 1.0])


@pytest.mark.parametrize(("speaker", "place"), EVERY_PLACE)
async def test_what_is_spent_is_not_sent_again_wherever_it_stands(
    speaker: Speaker, place: str
) -> None:
    here = Exchange(speaker, places(speaker, BUSY[speaker], SPENT)[place])
    with pytest.raises(ProviderRefused, match=r"waiting does not help") as caught:
        await here.run()
    assert here.requests == 1
    assert "wait and try again" not in str(caught.value)


TYPED = [
    each
    for each in EVERY_PLACE
    if each.values[0] in REFUSED
    # There the error has a code of its own.
    and each.values[1] not in ("in a choice", "beside a choice", "groq, beside")
]


@pytest.mark.parametrize(("speaker", "place"), TYPED)
async def test_what_blames_the_request_is_not_sent_again(speaker: Speaker, place: str) -> None:
    here = Exchange(speaker, places(speaker, REFUSED[speaker], "no such thing")[place])
    with pytest.raises(ProviderRefused, match="no such thing"):
        await here.run()
    assert here.requests == 1


@pytest.mark.parametrize(
    "text",
    [
        # ggml-org/llama.cpp#19851
        "Jinja Exception: conversation roles must alternate user and assistant roles",
        # jundot/omlx#1997
        "Tool call id was call_49c89af0 but must be a-z, A-Z, 0-9, with a length of 9",
        # scouzi1966/maclocal-api#67
        "TemplateException: Invalid tool response: 'name' must be provided.",
        # brontoguana/krasis#10
        "Chat template failed: Template render failed: invalid operation (in chat:98)",
        # gonka-ai/gonka#985
        "json: cannot unmarshal array into Go struct field Message.content of type string",
        # cubist38/mlx-openai-server#205
        "Message has tool role, but there was no previous assistant message with a tool call!",
        # mistralai/mistral-vibe#578, behind a proxy that answers 500
        "Unexpected role 'user' after role 'tool'",
    ],
)
def test_a_template_that_refuses_a_history_will_refuse_it_again(text: str) -> None:
    body = json.dumps({"error": {"message": text}}).encode()
    assert isinstance(http_error(500, body, host="here"), ProviderRefused)
    assert isinstance(http_error(500, b"upstream connect error", host="here"), ProviderBusy)


@by_wire
@pytest.mark.parametrize("part", [said("so far"), thought("hm"), called("f", '{"a": 1}')])
async def test_once_something_was_passed_on_nothing_is_sent_again(
    speaker: Speaker, part: Any
) -> None:
    events = [*speaker.stream([part], None), speaker.error(BUSY[speaker], "late trouble")]
    here = Exchange(speaker, framed(speaker, events), good(speaker))
    with pytest.raises(ProviderBusy, match="late trouble"):
        await here.run()
    assert here.requests == 1 and here.deltas


@by_wire
async def test_a_stream_that_ends_with_nothing_said_is_tried_again(speaker: Speaker) -> None:
    media = AWS if speaker is CONVERSE else SSE
    empty = [(media, b""), framed(speaker, speaker.stream([], None)), (media, b"")]
    here = Exchange(speaker, *empty[:2], good(speaker))
    assert (await here.run()).text == "ok"
    assert here.requests == 3
    always = Exchange(speaker, *empty)
    with pytest.raises(StreamBroken, match="answered without an event; send the request again"):
        await always.run()
    assert always.requests == 3
    half = Exchange(speaker, empty[1])
    with pytest.raises(StreamBroken, match=r"cut before|without an event"):
        await half.run()
    assert half.requests == 3


@by_wire
async def test_an_answer_that_the_provider_gave_up_is_tried_again(speaker: Speaker) -> None:
    for word in speaker.trouble:
        here = Exchange(speaker, framed(speaker, speaker.stream([], word)), good(speaker))
        assert (await here.run()).text == "ok"
        assert here.requests == 2
        half = Exchange(speaker, framed(speaker, speaker.stream([said("half")], word)))
        answer = await half.run()
        assert (answer.text, answer.ending, half.requests) == ("half", "trouble", 1)


@by_wire
async def test_a_whole_body_where_a_stream_was_asked_for_is_the_answer(speaker: Speaker) -> None:
    parts = [thought("hm"), said("ok"), called("f", '{"a": 1}')]
    body = speaker.body(parts, speaker.whole[0])
    streamed = speaker.answer(*parts)
    for media, data in (
        ("application/json", json.dumps(body).encode()),
        ("application/json", json.dumps(body, indent=2).encode()),
        ("application/json", b"\n\n \n" + json.dumps(body).encode()),
        ("application/json; charset=utf-8", b"\xef\xbb\xbf" + json.dumps(body).encode()),
        (SSE, json.dumps(body).encode()),
        (SSE, json.dumps(body, indent=2).encode() + b"\n\n"),
        (SSE, b"data: " + json.dumps(body).encode()),
    ):
        if speaker is CONVERSE and media == SSE:
            continue
        found = await Exchange(speaker, (media, data)).run()
        assert (found.text, found.reasoning, found.ending) == ("ok", "hm", "whole")
        assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [
            ("f", {"a": 1})
        ]
        assert found.usage.prompt == streamed.usage.prompt == 140
        assert found.usage.output == 7


async def test_gemini_may_answer_with_a_list_of_chunks() -> None:
    chunks = [data for _, data in GEMINI.stream([said("o", "k")], "STOP")]
    body = json.dumps(chunks, indent=1).encode()
    assert (await Exchange(GEMINI, ("application/json", body)).run()).text == "ok"


@pytest.mark.parametrize(
    "body",
    [
        {"code": "Throttling", "message": "slow down", "request_id": "r"},
        {"code": 500, "msg": "slow down", "success": False},
        {"message": "slow down"},
        {"__type": "InternalServerException", "message": "slow down"},
        {"detail": "slow down"},
        {"status": "error", "message": "slow down"},
        {"status": 503, "msg": "slow down"},
        {"object": "error", "message": "slow down", "type": "ServerError", "code": 503},
        {"error": "slow down"},
        {"error": {"message": "slow down", "code": "502"}},
    ],
)
@by_wire
async def test_an_error_that_stands_alone_in_a_body(speaker: Speaker, body: Json) -> None:
    answer = ("application/json", json.dumps(body).encode())
    here = Exchange(speaker, answer, good(speaker))
    assert (await here.run()).text == "ok"
    with pytest.raises(ProviderBusy, match="slow down"):
        await Exchange(speaker, answer).run()


# -- what is spent ------------------------------------------------------------------------------

NOT_OVERLOAD = [
    (429, {"error": {"code": "insufficient_quota", "message": SPENT}}),
    (429, {"error": {"type": "insufficient_quota", "message": "no"}}),
    (429, {"error": {"type": "exceeded_current_quota_error", "message": "no"}}),
    (429, {"error": {"code": "1113", "message": "Insufficient balance. Please recharge."}}),
    (429, {"error": {"code": 1310, "message": "Weekly limit"}}),
    (429, {"error": {"type": "usage_limit_reached", "message": "The usage limit was reached"}}),
    (403, {"error": "Your team has used all available credits"}),
    (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}}),
    (402, {}),
    (400, {"error": {"type": "invalid_request", "message": "Your credit balance is too low"}}),
    (400, {"code": "Arrearage", "message": "make sure your account is in good standing"}),
    (503, {"error": {"message": "You have exceeded your monthly included credits"}}),
    (429, {"__type": "ThrottlingException", "message": "Too many tokens per day, please wait."}),
]  # fmt: skip
OVERLOAD = [
    (429, {"error": {"message": "Rate limit reached", "type": "rate_limit_error"}}),
    (429, {"error": {"code": 429, "message": f"{SPENT}. Please retry in 18.2s."}}),
    (429, {"error": {"message": SPENT, "details": [{"@type": "x", "retryDelay": "18s"}]}}),
    (429, {"error": {"code": "1302", "message": "too many requests at once"}}),
    (429, {"message": "Too many tokens, please wait before trying again."}),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    (503, {}),
    (429, {}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), NOT_OVERLOAD)
def test_what_is_spent_is_no_overload(status: int, body: Json) -> None:
    error = http_error(status, json.dumps(body).encode(), host="h")
    assert isinstance(error, ProviderRefused) and not error.again
    assert str(error).endswith("waiting does not help: check the account's balance and its limits")
    assert "\n" not in str(error)


@pytest.mark.parametrize(("status", "body"), OVERLOAD)
def test_what_passes_is_overload(status: int, body: Json) -> None:
    error = http_error(status, json.dumps(body).encode(), host="h")
    assert isinstance(error, ProviderBusy) and error.again
    assert str(error).endswith("wait and try again")


@by_wire
def test_an_error_behind_a_status_may_be_an_event_all_the_same(speaker: Speaker) -> None:
    body = encoded([speaker.error("a_code", "slow down")])
    for raw in (body, body.replace(b"\n", b"\r\n"), b": wait\n\n" + body):
        error = http_error(429, raw, host="h")
        assert (error.code, error.status) == ("a_code", 429)
        assert "slow down; wait" in str(error)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"[[]]", b"7", b'"x"', b"\xff", b"{", b"{}"])
def test_no_shape_of_an_error_is_too_odd(body: bytes) -> None:
    for error in (http_error(500, body, host="h"), stream_error(body)):
        assert isinstance(error, ProviderError) and "\n" not in str(error)


# -- how long is waited -------------------------------------------------------------------------

BUSY_BODY = b'{"error": {"type": "rate_limit_error", "message": "slow down"}}'


def date(offset: str, year: int = 2024) -> str:
    return f"Mon, 01 Jan {year:04} 00:00:00 {offset}"


ABSURD = [
    {"retry-after": value}
    for value in (
        "nan", "-1", "inf", "-inf", "1_0", "soon", "", " ", "0x10", "1,5", "-0.5", "١", "\u00b2",
        date("+99999999999999"), date("-99999999999999"), date("+0000", 0), date("x"), "99 Foo",
        "Thu, 32 Foo 20245 99:99:99 GMT", ", ,", "Mon, 01 Jan",
    )
]  # fmt: skip
LONG = [
    ({"retry-after": "14400"}, "4 hours"),
    ({"retry-after": "61"}, "1 minute"),
    ({"retry-after-ms": "90000"}, "1.5 minutes"),
    ({"retry-after": "86400"}, "1 day"),
    ({"retry-after": "1e300"}, "more than a year"),
    ({"retry-after": "9" * 5000}, "more than a year"),
    ({"retry-after": date("GMT", 9999)}, "more than a year"),
    ({"retry-after": date("-0000", 2300)}, "more than a year"),
    ({"retry-after": "1" + "0" * 30}, "more than a year"),
]


@pytest.mark.parametrize("headers", ABSURD, ids=lambda each: each["retry-after"][:20])
async def test_an_absurd_wait_is_no_exception(headers: dict[str, str]) -> None:
    here = Exchange(CHAT, ("application/json", BUSY_BODY, 429, headers), good(CHAT))
    assert (await here.run()).text == "ok"
    assert here.slept in ([0.5], [0.0])


@pytest.mark.parametrize(("headers", "named"), LONG, ids=lambda each: str(each)[:30])
async def test_a_wait_beyond_the_limit_is_an_error_that_names_it(
    headers: dict[str, str], named: str
) -> None:
    here = Exchange(CHAT, ("application/json", BUSY_BODY, 429, headers), good(CHAT))
    with pytest.raises(ProviderBusy) as caught:
        await here.run()
    assert (here.slept, here.requests) == ([], 1)
    assert f"slow down; it asks to wait {named}, longer than the 60 s" in str(caught.value)
    assert (caught.value.status, caught.value.code) == (429, "rate_limit_error")


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"details": [{"@type": "x", "retryDelay": "3600s"}], "message": "m"}},
        {"error": {"message": "m", "retry_after": 3600}},
        {"error": {"message": "m", "resets_in_seconds": 3600.5}},
    ],
)
async def test_a_wait_in_the_body_counts_wherever_it_stands(body: Json) -> None:
    raw = json.dumps(body).encode()
    for answer in (
        ("application/json", raw, 429, {}),
        ("application/json", raw),
        (SSE, b"data: " + raw + b"\n\n"),
    ):
        here = Exchange(CHAT, answer, good(CHAT))
        with pytest.raises(ProviderBusy, match="it asks to wait 1 hour"):
            await here.run()
        assert here.slept == []
    short = raw.replace(b"3600", b"7")
    here = Exchange(CHAT, ("application/json", short), good(CHAT))
    assert (await here.run()).text == "ok"
    assert here.slept in ([7.0], [7.5])


async def test_a_date_that_has_passed_is_not_waited_for() -> None:
    passed = email.utils.formatdate(NOW - 9, usegmt=True)
    naive = passed.replace("GMT", "-0000")
    for value in (passed, naive):
        answer = ("application/json", BUSY_BODY, 429, {"retry-after": value})
        here = Exchange(CHAT, answer, good(CHAT))
        assert (await here.run()).text == "ok"
        assert here.slept == [0.0]


async def test_headers_of_an_answer_with_an_error_inside_count_too() -> None:
    error = encoded([CHAT.error("rate_limit_exceeded", "slow down")])
    here = Exchange(CHAT, (SSE, error, 200, {"retry-after": "3"}), good(CHAT))
    assert (await here.run()).text == "ok"
    assert here.slept == [3.0]


async def test_all_attempts_are_counted_together() -> None:
    event = encoded([CHAT.error("server_error", "later")])
    answers = [
        ("application/json", b"{}", 503, {}),
        (SSE, event),
        ("application/json", b"{}", 500, {}),
    ]
    here = Exchange(CHAT, *answers)
    with pytest.raises(ProviderBusy, match="answered 500, 3 times"):
        await here.run()
    assert here.slept == [0.5, 1.0]
    assert [retry.attempt for retry in here.retries] == [1, 2]


# -- keep-alives without an event ---------------------------------------------------------------

KEEP_ALIVES = [
    b": waiting\n\n",
    b":\n",
    b"\n",
    b"event: ping\ndata: {}\n\n",
    b"data: null\n\n",
    b"data: [PING]\n\n",
    b'data: {"type": "ping"}\n\n',
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b"data: \n\n",
    b"retry: 10\n\n",
    b"data: 2026-01-01 00:00:00\n\n",
    b'data: {"type":"keepalive","sequence_number":3}\n\n',
]


def endless(piece: bytes) -> Callable[[], AsyncGenerator[bytes]]:
    async def body() -> AsyncGenerator[bytes]:
        while True:
            yield piece

    return body


async def _sent(answer: httpx2.Response, **settings: Any) -> Answer:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: answer))
    async with client, Transport(TransportSettings(**settings), client=client) as transport:
        request = WireRequest("http://provider.example/x", (), b"{}")
        return await send(transport, WIRES["openai_chat"], request)


@pytest.mark.parametrize("piece", KEEP_ALIVES)
@pytest.mark.parametrize("begun", [b"", b'data: {"choices": []}\n\n'])
async def test_keep_alives_have_a_limit_in_bytes(piece: bytes, begun: bytes) -> None:
    async def body() -> AsyncGenerator[bytes]:
        yield begun
        while True:
            yield piece * 200

    answer = httpx2.Response(200, headers={"content-type": SSE}, content=body())
    with anyio.fail_after(20), pytest.raises(StreamBroken, match="keep-alives and no event"):
        await _sent(answer, max_quiet=64 * 1024)


@pytest.mark.parametrize("piece", KEEP_ALIVES)
async def test_keep_alives_have_a_limit_in_time(piece: bytes) -> None:
    async def body() -> AsyncGenerator[bytes]:
        while True:
            await anyio.lowlevel.checkpoint()
            yield piece

    answer = httpx2.Response(200, headers={"content-type": SSE}, content=body())
    with anyio.fail_after(20), pytest.raises(StreamBroken, match=r"0\.05 s of keep-alives"):
        await _sent(answer, quiet=0.05, max_quiet=10**12, max_answer=10**12)


async def test_a_long_event_is_no_keep_alive() -> None:
    chunk = chat_chunk({"content": "x" * 3_000_000})
    data = b": wait\n\n" * 10 + encoded([(None, chunk), (None, chat_chunk({}, "stop"))])
    answer = httpx2.Response(200, headers={"content-type": SSE}, content=data)
    assert len((await _sent(answer, max_quiet=1000)).text) == 3_000_000


def packed(data: bytes, count: int, encoding: str) -> bytes:
    wbits = {"gzip": 31, "deflate": 15}[encoding]
    pack = zlib.compressobj(9, wbits=wbits)
    return b"".join([*(pack.compress(data) for _ in range(count)), pack.flush()])


@pytest.mark.parametrize(
    ("piece", "media", "status", "encoding"),
    [
        ((b": " + b"w" * 998 + b"\n\n") * 10, SSE, 200, "gzip"),
        (b"x" * 10_000, SSE, 200, "gzip"),
        (b"data: " + b"x" * 10_000, SSE, 200, "deflate"),
        (b" " * 10_000, "application/json", 200, "gzip"),
        (b"[" * 10_000, "application/json", 200, "deflate"),
        (b"no " * 4_000, "application/json", 500, "gzip"),
        (b"no " * 4_000, "text/html", 200, "gzip"),
    ],
)
async def test_what_is_packed_small_takes_no_more_memory_than_its_limits(
    piece: bytes, media: str, status: int, encoding: str
) -> None:
    """64 MB in less than a hundred kB."""
    body = packed(piece, 64_000_000 // len(piece), encoding)

    async def arriving() -> AsyncGenerator[bytes]:
        for start in range(0, len(body), 16_384):
            yield body[start : start + 16_384]

    headers = {"content-type": media, "content-encoding": encoding}
    limits: Json = {"max_event": 4_000_000, "max_quiet": 1_000_000, "retries": 0}
    tracemalloc.start()
    try:
        with pytest.raises(ProviderError):
            await _sent(httpx2.Response(status, headers=headers, content=arriving()), **limits)
        assert tracemalloc.get_traced_memory()[1] < 32_000_000
    finally:
        tracemalloc.stop()


async def test_an_answer_that_is_packed_is_read() -> None:
    for encoding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        headers = {"content-type": SSE, "content-encoding": encoding}
        body = pack(good(CHAT)[1])
        assert (await _sent(httpx2.Response(200, headers=headers, content=body))).text == "ok"


def test_usage_is_the_last_that_says_something() -> None:
    assert CHAT.answer(said("x")).usage.prompt == CHAT_USAGE["prompt_tokens"]
