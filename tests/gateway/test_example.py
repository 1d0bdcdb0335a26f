"""What the page about other people's clients shows, run."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from examples import in_front
from msgspec import json
from tests.gateway.playing import lab_of

KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
BODY: dict[str, Any] = {
    "model": "gpt-4.1",
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [
        {"type": "function", "function": {"name": "tides", "parameters": {"type": "object"}}}
    ],
}
CLAUDE: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [{"name": "tides", "input_schema": {"type": "object"}}],
}


def test_one_argument_in_the_vendors_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with lab_of() as lab, ExitStack() as stack:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", lab.base_url("anthropic"))
        monkeypatch.setenv("OPENAI_BASE_URL", lab.base_url("openai-chat"))
        claude, chat, later = in_front.one_argument()
        stack.enter_context(claude)
        stack.enter_context(chat)
        answer = chat.chat.completions.create(**BODY)
        assert answer.choices[0].message.content == "I heard: 'hello'"
        assert claude.messages.create(**CLAUDE).content[0].type == "text"
        assert later.base_url == chat.base_url
        first = json.decode(lab.captures[0].body)
        assert [each["function"]["name"] for each in first["tools"]] == ["tides", "call_tool"]


def test_a_client_that_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with lab_of() as lab:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", lab.base_url("anthropic"))
        path = tmp_path / "nodes.db"
        for _ in range(2):
            with in_front.lasting(str(path)) as claude:
                claude.messages.create(**CLAUDE)
        assert lab.captures[0].body == lab.captures[1].body
    assert path.exists()


def test_a_transport_of_ones_own_and_any_other_client() -> None:
    with lab_of() as lab:
        url = lab.base_url("openai-chat") + "/chat/completions"
        headers = {"authorization": "Bearer k", "content-type": "application/json"}
        body = json.encode(BODY)
        with in_front.own_transport() as client:
            through = client.post(url, headers=headers, content=body).json()
        bare = json.decode(in_front.any_client(url, headers, body))
        for answer in (through, bare):
            assert answer["choices"][0]["message"]["content"] == "I heard: 'hello'"
        assert lab.captures[0].body == lab.captures[1].body
        models = url.replace("/chat/completions", "/models")
        assert in_front.any_client(models, headers, b"{}") == httpx2.post(models).content
