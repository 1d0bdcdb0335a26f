"""The proxy of `addendum record`, between clients and providers on this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from addendum.lab.proxy import Proxy, open_proxy, targets
from addendum.lab.server import Lab, open_lab

pytestmark = pytest.mark.anyio

BODY = {
    "model": "claude-opus-5-5",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hello"}],
}
KEY = "-".join(("sk", "ant", "api03", "A1b2C3d4E5f6G7h8I9j0"))
HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}


@asynccontextmanager
async def between(path: Path) -> AsyncGenerator[tuple[Lab, Proxy, httpx2.AsyncClient]]:
    async with open_lab() as lab:
        environ = {"ANTHROPIC_BASE_URL": lab.base_url("anthropic")}
        async with open_proxy(path, environ) as proxy, httpx2.AsyncClient() as client:
            yield lab, proxy, client


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_addresses_are_the_ones_that_the_environment_says_else_the_providers_own() -> None:
    found = targets({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"})
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:9/v1"
    assert found["ANTHROPIC_BASE_URL"] == "https://api.anthropic.com"
    assert found["GOOGLE_GEMINI_BASE_URL"].startswith("https://generativelanguage")
    # Nobody can say where these are, and a signature holds for one host.
    assert "COMPATIBLE_BASE_URL" not in found
    assert not any("BEDROCK" in name for name in found)


async def test_bytes_pass_both_ways_and_are_written_without_credentials(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    body = json.dumps({**BODY, "system": f"The key is {KEY}."}, indent=1).encode()
    async with between(path) as (lab, proxy, client):
        url = f"{proxy.variables['ANTHROPIC_BASE_URL']}/v1/messages?beta=true"
        answer = await client.post(url, content=body, headers=HEADERS)
    assert answer.status_code == 200 and answer.json()["type"] == "message"
    assert lab.captures[0].body == body
    (line,) = lines(path)
    assert KEY not in path.read_text() and "[redacted " in line["body"]["system"]
    assert line["url"] == f"{lab.base_url('anthropic')}/v1/messages"
    assert line["usage"]["prompt"] == lab.captures[0].usage["input_tokens"]
    assert path.stat().st_mode & 0o077 == 0


async def test_a_stream_passes_as_it_comes_and_ends_when_nobody_listens(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with between(path) as (lab, proxy, client):
        url = f"{proxy.variables['ANTHROPIC_BASE_URL']}/v1/messages"
        lab.stall_next("anthropic", after_events=2)
        async with client.stream(
            "POST", url, json={**BODY, "stream": True}, headers=HEADERS
        ) as answer:
            first = await anext(answer.aiter_lines())
            assert first.startswith("event: message_start")
        # Whoever asked had left: so did the proxy, and wrote down what there was.
    assert [line["status"] for line in lines(path)] == [200]


async def test_what_asks_no_model_passes_and_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with between(path) as (_, proxy, client):
        base = proxy.variables["ANTHROPIC_BASE_URL"]
        assert (await client.get(f"{base}/v1/models")).status_code == 404
        assert (await client.post(f"{base}/v1/messages", content=b"{")).status_code == 401
        # Only who knows the first part of the address is served, and only known names.
        assert (await client.get(f"{base.rsplit('/', 1)[0]}/OTHER/v1")).status_code == 404
        host = "/".join(base.split("/")[:3])
        assert (await client.get(f"{host}/x/ANTHROPIC_BASE_URL/v1")).status_code == 404
    assert lines(path) == []


async def test_an_address_that_cannot_be_reached_is_told_in_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    environ = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    async with open_proxy(path, environ) as proxy, httpx2.AsyncClient() as client:
        url = f"{proxy.variables['ANTHROPIC_BASE_URL']}/v1/messages"
        answer = await client.post(url, json=BODY, headers=HEADERS)
    assert answer.status_code == 502
    assert "cannot reach 127.0.0.1" in answer.json()["error"]["message"]
    assert [line["status"] for line in lines(path)] == [0]


async def test_a_refusal_and_a_cut_pass_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    async with between(path) as (lab, proxy, client):
        url = f"{proxy.variables['ANTHROPIC_BASE_URL']}/v1/messages"
        lab.fail_next("anthropic", status=429, retry_after=3)
        answer = await client.post(url, json=BODY, headers=HEADERS)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
        lab.cut_next("anthropic")
        with pytest.raises(httpx2.TransportError):
            await client.post(url, json={**BODY, "stream": True}, headers=HEADERS)
    assert [line["status"] for line in lines(path)] == [429, 200]
