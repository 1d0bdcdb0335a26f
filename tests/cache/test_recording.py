"""A client that is not ours is recorded as it sends, and its requests are checked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.cache.captures import read_captures

from addendum.cache.recording import RecordingTransport
from addendum.lab.server import open_lab

pytestmark = pytest.mark.anyio

URL = "https://user:secret@h.example/v1/messages?key=secret"
BODY = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}
ANSWER = {"usage": {"input_tokens": 5, "cache_read_input_tokens": 30, "output_tokens": 2}}
HEADERS = {"x-api-key": "secret", "anthropic-version": "1", "authorization": "secret"}


PLAIN = {"x-api-key": "any", "anthropic-version": "2023-06-01"}


def answering(*chunks: bytes, status: int = 200, **headers: str) -> httpx2.MockTransport:
    def handle(request: httpx2.Request) -> httpx2.Response:
        def stream() -> Iterator[bytes]:
            yield from chunks

        return httpx2.Response(status, headers=headers, content=stream())

    return httpx2.MockTransport(handle)


def post(path: Path, inner: Any, content: Any = None, url: str = URL) -> httpx2.Response:
    with httpx2.Client(transport=RecordingTransport(inner, path)) as client:
        data = json.dumps(BODY, indent=1).encode() if content is None else content
        return client.post(url, content=data, headers=HEADERS)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_request_is_written_down_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    answer = post(path, answering(json.dumps(ANSWER).encode()))
    assert answer.json() == ANSWER
    assert "secret" not in path.read_text()
    (line,) = lines(path)
    assert line["url"] == "https://h.example/v1/messages"
    assert line["headers"] == {"anthropic-version": "1"}
    assert (line["body"], line["status"]) == (BODY, 200)
    assert line["usage"] == {"prompt": 35, "cache_read": 30, "cache_write": None, "output": 2}
    assert line["answered"] >= line["time"]
    (capture,) = read_captures(path)
    assert capture.usage.cache_read == 30 and capture.answered == line["answered"]
    # The bytes stay what they were, but for line ends between tokens.
    post(path, answering(), b'{ "model":"m","messages":[\r\n1e2, "\\n"] }')
    assert read_captures(path)[1].body == b'{ "model":"m","messages":[  1e2, "\\n"] }'


async def test_a_packed_answer_is_read_and_passes_on_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    packed = gzip.compress(json.dumps(ANSWER).encode())
    answer = post(path, answering(packed[:9], packed[9:], **{"content-encoding": "gzip"}))
    assert answer.json() == ANSWER
    assert lines(path)[0]["usage"]["cache_read"] == 30


async def test_only_requests_to_models_are_written(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    for content in (b"", b"text", b"{}", b"[1]", b'{"a": NaN}', b'{"messages": 3}'):
        assert post(path, answering(b"ok"), content).text == "ok"
    post(path, answering(b"ok"), url="https://h.example/v1/messages/count_tokens")
    with httpx2.Client(transport=RecordingTransport(answering(b"ok"), path)) as client:
        client.get("https://h.example/v1/models")
    assert lines(path) == []


async def test_what_fails_is_written_as_such(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    post(path, answering(b'{"error": {}}', status=429))

    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no")

    with pytest.raises(httpx2.ConnectError):
        post(path, httpx2.MockTransport(broken))
    assert [line["status"] for line in lines(path)] == [429, 0]
    assert all(line["usage"]["prompt"] is None for line in lines(path))


async def test_a_stream_that_is_left_early_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    start = b'data: {"message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 3}}}\n\n'
    inner = RecordingTransport(answering(start, b"data: {}\n\n", b"data: {}\n\n"), path)
    with httpx2.Client(transport=inner) as client:
        with client.stream("POST", URL, json=BODY) as answer:
            chunks = answer.iter_bytes()
            assert next(chunks) == start
            assert lines(path) == []
    (line,) = lines(path)
    assert line["usage"]["cache_read"] == 3


async def test_an_async_client_streams_from_the_lab_and_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with open_lab() as lab:
        transport = RecordingTransport(httpx2.AsyncHTTPTransport(), path)
        async with httpx2.AsyncClient(transport=transport) as client:

            async def ask(text: str) -> None:
                body = {**BODY, "stream": True, "messages": [{"role": "user", "content": text}]}
                url = lab.base_url("anthropic") + "/v1/messages"
                async with client.stream("POST", url, json=body, headers=PLAIN) as answer:
                    answer.raise_for_status()
                    async for _ in answer.aiter_bytes():
                        pass

            async with anyio.create_task_group() as tasks:
                for text in ("a", "b", "c"):
                    tasks.start_soon(ask, text)
        usages = sorted(sum(_counts(capture.usage)) for capture in lab.captures)
    assert sorted(line["usage"]["prompt"] for line in lines(path)) == usages
    assert {each.status for each in read_captures(path)} == {200}


def _counts(usage: dict[str, int]) -> list[int]:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return [usage[name] for name in names]
