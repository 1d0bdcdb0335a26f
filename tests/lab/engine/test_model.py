from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.lab.engine.engine_here import Json, asked, needs_engine, rendered

from addendum.lab.engine.model import TEMPLATE, write_model
from addendum.lab.engine.server import open_engine

pytestmark = pytest.mark.anyio

TOOL: Json = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Søg",
        "parameters": {"type": "object", "properties": {"zeta": {}, "alpha": {}}},
    },
}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":1}'}}
BODY: Json = {
    "model": "m",
    "tools": [TOOL],
    "messages": [
        {"role": "system", "content": "Vær kort. \N{SNOWMAN} \U0001f6a2"},
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "there"},
    ],
}


def test_the_file_is_small_and_the_same_each_time(tmp_path: Path) -> None:
    one = write_model(tmp_path / "one.gguf").read_bytes()
    other = write_model(tmp_path / "other.gguf").read_bytes()
    assert one == other
    assert one[:4] == b"GGUF"
    version, tensors, _ = struct.unpack_from("<IQQ", one, 4)
    assert (version, tensors) == (3, 12)
    assert TEMPLATE.encode() in one
    assert len(one) < 200_000


@needs_engine
async def test_a_token_is_a_byte_or_a_control_token() -> None:
    async with open_engine() as engine:
        prompt = await rendered(engine, BODY)
        usage = await asked(engine, "/v1/chat/completions", BODY)
    assert usage["prompt_tokens"] == len(prompt)


@needs_engine
async def test_tools_stand_in_front_then_the_system_text_then_the_messages() -> None:
    async with open_engine() as engine:
        prompt = (await rendered(engine, BODY)).decode()
    places = [
        prompt.index(each)
        for each in ("Søg", "zeta", "alpha", "Vær kort", "user\none", 'look {"q": 1}', "there")
    ]
    assert places == sorted(places)
    assert prompt.startswith("\0tool\n")
    assert prompt.endswith("\0\n\0assistant\n")


@needs_engine
async def test_a_longer_conversation_extends_the_prompt() -> None:
    more = [{"role": "assistant", "content": "So."}, {"role": "user", "content": "next"}]
    longer = {**BODY, "messages": [*BODY["messages"], *more]}
    async with open_engine() as engine:
        before, after = await rendered(engine, BODY), await rendered(engine, longer)
    assert after.startswith(before + b"So.\0")
