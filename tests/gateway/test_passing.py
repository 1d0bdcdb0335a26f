"""Requests that leave as they came: for how long, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import json
from tests.gateway.playing import lab_of
from tests.gateway.talking import Talk

from addendum.gateway.drive import OFF, Gateway, GatewayExchange
from addendum.stores.nodes import MemoryNodes

CHAT, MESSAGES, NATIVE = (
    "openai-chat:gpt-4.1",
    "anthropic:claude-sonnet-5",
    "anthropic:claude-opus-5-5",
)
BASE = ["tides", "weather"]
MORE = ["ships", "buoys"]
LONG = "Say something about the harbour. " * 40

WITH_DISPATCHER = "call_tool taken"
SWITCHED_OFF = "switched off"
MANY = "too many tools"


def hinder(talk: Talk, why: str, patch: pytest.MonkeyPatch) -> None:
    if why == SWITCHED_OFF:
        patch.setenv(OFF, "1")
    elif why == MANY:
        talk.tools += [f"tool_{number}" for number in range(128 - len(talk.tools))]
    else:
        talk.tools.append("call_tool")


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (CHAT, WITH_DISPATCHER),
        (MESSAGES, WITH_DISPATCHER),
        (CHAT, MANY),
        *((route, SWITCHED_OFF) for route in (CHAT, MESSAGES, NATIVE)),
    ],
)
def test_a_conversation_is_passed_on_as_long_as_its_reason_holds(
    route: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    with lab_of() as lab:
        talk = Talk(lab, route, lambda: gateway, BASE)
        talk.say(LONG)
        talk.tools += MORE
        talk.say("/call ships {}")
        before = list(talk.tools)
        with monkeypatch.context() as patch:
            hinder(talk, why, patch)
            start = len(talk.passed)
            talk.say("/call buoys {}")
            talk.say(LONG)
            assert talk.bodies[-1] == own_body(talk)
        assert set(talk.passed[start:]) == {why}
        talk.tools = before
        start = len(talk.passed)
        talk.say("/call ships {}")
        talk.tools.append("anchors")
        talk.say("/call anchors {}")
        assert set(talk.passed[start:]) == {""}
        assert talk.calls == ["ships", "buoys", "ships", "anchors"]
        assert all(each.status == 200 for each in lab.captures)
    assert talk.reasons() == ["passed on unchanged", "head changed"]


def own_body(talk: Talk) -> bytes:
    """Return the client's own body of its last request."""
    answer = talk.messages.pop()
    body = talk.body()
    talk.messages.append(answer)
    return body


class Forgetful(MemoryNodes):
    """A store that has lost what it kept longest without a use."""

    def forget(self, part: str) -> int:
        """Forget all definitions that hold a text; return how many."""
        gone = [
            name
            for name, value in self._values.items()
            if name.startswith("definition:") and part.encode() in value
        ]
        for name in gone:
            del self._values[name]
        return len(gone)


@pytest.mark.parametrize("route", [CHAT, MESSAGES, NATIVE])
def test_a_definition_that_is_kept_no_more_is_one_declared_break(route: str) -> None:
    store = Forgetful()
    gateway = Gateway(store)
    with lab_of() as lab:
        talk = Talk(lab, route, lambda: gateway, [*BASE, *MORE])
        talk.say(LONG)
        talk.tools = list(BASE)
        talk.say(LONG)
        assert store.forget('"buoys"') == 1
        talk.say(LONG)
        talk.tools += MORE
        talk.say("/call buoys {}")
        assert talk.calls == ["buoys"]
        assert all(each.status == 200 for each in lab.captures)
    assert set(talk.passed) == {""}
    assert talk.reasons() == ["history unknown"]


FORCED = {
    CHAT: {"tool_choice": {"type": "function", "function": {"name": "ships"}}},
    MESSAGES: {"tool_choice": {"type": "tool", "name": "ships"}},
}


@pytest.mark.parametrize("route", FORCED)
def test_a_request_that_is_known_may_be_asked_for_with_another_choice(route: str) -> None:
    gateway = Gateway()
    with lab_of() as lab:
        talk = Talk(lab, route, lambda: gateway, BASE)
        for _ in range(4):
            talk.say(LONG)
        talk.tools += MORE
        talk.messages.append({"role": "user", "content": "go"})
        talk.post()
        talk.more = FORCED[route]
        talk.post()
        assert talk.passed[-2:] == ["", "forced tool"]
        assert talk.bodies[-1] == talk.body()
        talk.more = {}
        talk.post()
        assert talk.passed[-1] == ""
        assert all(each.status == 200 for each in lab.captures)


URLS = {
    CHAT: "https://api.openai.com/v1/chat/completions",
    NATIVE: "https://api.anthropic.com/v1/messages",
}


def asked(gateway: Gateway, route: str, system: str, tools: Sequence[str]) -> GatewayExchange:
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    declared: list[Any] = []
    for name in tools:
        own = {"name": name, "description": "A tool."}
        function = {**own, "parameters": {"type": "object"}}
        told = {**own, "input_schema": {"type": "object"}}
        declared.append({"type": "function", "function": function} if route == CHAT else told)
    body: dict[str, Any] = {"model": route.partition(":")[2], "tools": declared}
    if route == CHAT:
        body["messages"] = [{"role": "system", "content": system}, *messages]
    else:
        body |= {"max_tokens": 10, "system": system, "messages": messages}
    exchange = gateway.begin(URLS[route], {"authorization": "Bearer k"}, json.encode(body))
    assert exchange is not None
    return exchange


def refused(exchange: GatewayExchange, said: str) -> None:
    """Refuse what was told, and take the client's own body."""
    exchange.start(400, "application/json")
    exchange.feed(json.encode({"error": {"message": said}}))
    assert exchange.end() == b""
    assert exchange.again is not None
    assert exchange.headers == {}
    exchange.start(200, "application/json")
    answer = json.encode({"choices": [], "content": []})
    assert exchange.feed(answer) + exchange.end() == answer
    assert exchange.again is None


def way(exchange: GatewayExchange) -> str:
    assert exchange.node is not None
    return exchange.passed or exchange.node.projection


@pytest.mark.parametrize(
    ("route", "first", "then", "said"),
    [
        (CHAT, "dispatch", "refused by the endpoint", "call_tool"),
        (NATIVE, "in-history", "dispatch", "tool_definition"),
    ],
)
def test_a_refusal_counts_for_as_much_as_it_names(
    route: str, first: str, then: str, said: str
) -> None:
    gateway = Gateway()
    one = asked(gateway, route, "one", BASE)
    assert way(one) == first
    refused(one, "something is wrong with this history")
    # Nobody knows what was to blame: it counts for what begins so, and for nothing else.
    assert way(asked(gateway, route, "one", BASE)) == then
    two = asked(gateway, route, "two", BASE)
    assert way(two) == first
    refused(two, f"unknown value: {said}")
    assert way(asked(gateway, route, "three", BASE)) == then
    assert way(asked(Gateway(), route, "three", BASE)) == first


def test_a_refusal_that_the_clients_own_body_shares_is_not_remembered() -> None:
    gateway = Gateway()
    exchange = asked(gateway, CHAT, "one", BASE)
    said = json.encode({"error": {"message": "call_tool"}})
    exchange.start(400, "application/json")
    exchange.feed(said)
    exchange.end()
    exchange.start(400, "application/json")
    assert exchange.feed(said) + exchange.end() == said
    assert exchange.again is None
    assert way(asked(gateway, CHAT, "one", BASE)) == "dispatch"
