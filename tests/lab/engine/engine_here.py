"""Whether the real engine can run here, and how a prompt counts in it."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from addendum import encoding
from addendum.lab.engine.relay import Relay
from addendum.lab.engine.server import Engine, unavailable

Json = dict[str, Any]

needs_engine = pytest.mark.skipif(
    unavailable() is not None, reason=f"no real engine: {unavailable()}"
)

_CONTROL = re.compile(rb"<\|\w+\|>")


async def rendered(engine: Engine, body: Json) -> bytes:
    """The prompt that the engine makes of a Chat body, with one byte for each of its tokens."""
    status, payload = await engine.post("/apply-template", body)
    assert status == 200, payload
    return _CONTROL.sub(b"\0", encoding.decode(payload)["prompt"].encode())


async def asked(engine: Engine, path: str, body: Json) -> Json:
    """Let the engine evaluate a prompt, and return the usage it reports."""
    status, payload = await engine.post(path, {**body, "max_tokens": 1, "temperature": 0})
    assert status == 200, payload
    return encoding.decode(payload)["usage"]


async def relayed(relay: Relay, path: str, body: Json) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        return await client.post(relay.url + path, json=body)


def common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
