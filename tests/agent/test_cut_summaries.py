"""A summary that was cut off replaces nothing, in whichever words a wire says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agent.trouble import answering

from addendum.agent.agent import Agent
from addendum.agent.context.compaction import NoSummary

pytestmark = pytest.mark.anyio

CLAUDE, CHAT = "anthropic:claude-opus-5-5", "openai-chat:gpt-4.1"


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(
        f"event: {each.get('type', 'message')}\ndata: {json.dumps(each)}\n\n".encode()
        for each in events
    )


def claude(text: str, stop: str) -> bytes:
    usage = {"input_tokens": 9, "output_tokens": 5}
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": text}
    message = {"id": "m", "role": "assistant", "content": [], "usage": usage}
    return stream(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    )


def chat(text: str, stop: str) -> bytes:
    delta = {"role": "assistant", "content": text}
    told = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}
    return stream(told, end) + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("route", "answer", "whole", "cut"),
    [
        (CLAUDE, claude, "end_turn", "max_tokens"),
        (CLAUDE, claude, "end_turn", "model_context_window_exceeded"),
        (CHAT, chat, "stop", "length"),
    ],
)
async def test_it_leaves_the_session_as_it_was(
    route: str, answer: Any, whole: str, cut: str, tmp_path: Path
) -> None:
    transport = answering(answer("An answer.", whole), answer("They said", cut))
    agent = Agent(route, transport=transport, base_url="http://127.0.0.1:9")
    async with agent.open("s", store=f"sqlite:///{tmp_path / 's.db'}") as session:
        await session.run("Say it at some length, please: more words than a summary has.")
        before = list(session.log.surface.nodes)
        with pytest.raises(NoSummary, match="cut off"):
            await session.compact()
        assert session.log.surface.nodes == before
