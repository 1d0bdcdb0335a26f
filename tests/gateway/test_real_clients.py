"""The vendors' SDKs, unchanged, with one argument more: the same talk, read from the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx
import httpx2
import openai
import pytest
from tests.gateway.playing import Played, lab_of, play_chat, play_messages, report, uncached

import addendum
from addendum.lab.scenario_file import find
from addendum.lab.server import Lab

G2 = find("g2")
MOST = 28_000
"""Tokens of g2 that may be read anew; without us 64,000 and more."""

MODELS = (
    ("openai-chat", "gpt-4.1"),
    ("openai-chat", "gpt-6.1-sol"),
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-sonnet-5"),
    ("anthropic", "claude-haiku-4-5"),
)


def talk(lab: Lab, provider: str, model: str, stream: bool, **more: Any) -> Played:
    base = lab.base_url(provider)
    if provider == "anthropic":
        with anthropic.Anthropic(base_url=base, api_key="k", max_retries=0, **more) as client:
            thinking = "opus" in model
            return play_messages(client, model, G2, stream=stream, thinking=thinking)
    with openai.OpenAI(base_url=base, api_key="k", max_retries=0, **more) as chat:
        return play_chat(chat, model, G2, stream=stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("provider", "model"), MODELS)
def test_the_same_talk_is_read_from_the_cache(provider: str, model: str, stream: bool) -> None:
    with lab_of(G2) as lab:
        alone = talk(lab, provider, model, stream)
        lost = uncached(lab.captures)
    with lab_of(G2) as lab, addendum.http_client() as client:
        through = talk(lab, provider, model, stream, http_client=client)
        assert all(each.status == 200 for each in lab.captures)
        figures = report(lab.captures, lab.url).totals
        read_anew = uncached(lab.captures)
    assert (through.calls, through.texts) == (alone.calls, alone.texts)
    assert figures.undeclared_misses == 0
    assert figures.ceiling_share is not None and figures.ceiling_share >= 0.99
    assert read_anew <= MOST < lost
    calls = iter(through.calls)
    names = {name for name, _ in calls}
    assert "call_tool" not in names


def wrapped(library: Any) -> Any:
    return library.Client(transport=addendum.AddendumTransport(library.HTTPTransport()))


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_either_http_library_carries_it(library: Any) -> None:
    with lab_of(G2) as lab, wrapped(library) as client:
        talk(lab, "openai-chat", "gpt-4.1", True, http_client=client)
        assert uncached(lab.captures) <= MOST


def test_async_clients_are_carried_whole_and_streamed() -> None:
    async def ask(lab: Lab, wrap: Callable[[], Any]) -> list[Any]:
        async with wrap() as carried:
            client = openai.AsyncOpenAI(
                base_url=lab.base_url("openai-chat"), api_key="k", http_client=carried
            )
            messages: list[Any] = [{"role": "user", "content": "hello"}]
            calls: list[Any] = []
            for names in (["tides"], ["tides", "ships"]):
                tools: list[Any] = [
                    {"type": "function", "function": {"name": name, "parameters": {}}}
                    for name in names
                ]
                for each in tools:
                    each["function"]["parameters"] = {"type": "object", "properties": {}}
                messages += [{"role": "user", "content": f"/call {names[-1]} {{}}"}]
                answer = await client.chat.completions.create(
                    model="gpt-4.1", messages=messages, tools=tools
                )
                calls.append(answer.choices[0].message.tool_calls)
                async with client.chat.completions.stream(
                    model="gpt-4.1", messages=messages, tools=tools
                ) as events:
                    async for _ in events:
                        pass
                    final = await events.get_final_completion()
                calls.append(final.choices[0].message.tool_calls)
                messages.append(answer.choices[0].message.model_dump(exclude_none=True))
                called = calls[-2][0].id
                messages.append({"role": "tool", "tool_call_id": called, "content": "done"})
            return [call[0].function.name for call in calls]

    with lab_of() as lab:
        names = anyio.run(ask, lab, addendum.async_http_client)
        assert names == ["tides", "tides", "ships", "ships"]

        def over_httpx() -> Any:
            inner = httpx.AsyncHTTPTransport()
            return httpx.AsyncClient(transport=addendum.AsyncAddendumTransport(inner))

        assert anyio.run(ask, lab, over_httpx) == names
        assert all(each.status == 200 for each in lab.captures)


def test_a_restart_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nodes.db"
    bodies: list[list[bytes]] = []
    for _ in range(2):
        with lab_of(G2) as lab, addendum.http_client(store=url) as client:
            talk(lab, "openai-chat", "gpt-4.1", False, http_client=client)
            bodies.append([each.body for each in lab.captures])
    assert bodies[0] == bodies[1]


def test_off_by_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with lab_of(G2) as lab:
        talk(lab, "openai-chat", "gpt-4.1", False)
        alone = [each.body for each in lab.captures]
    monkeypatch.setenv("ADDENDUM_OFF", "1")
    with lab_of(G2) as lab, addendum.http_client() as client:
        talk(lab, "openai-chat", "gpt-4.1", False, http_client=client)
        assert [each.body for each in lab.captures] == alone
