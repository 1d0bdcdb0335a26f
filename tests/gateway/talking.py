"""A small client of Chat Completions and Messages, alone or through the gateway."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
from msgspec import json
from tests.gateway.playing import uncached

from addendum.gateway.branches import Node
from addendum.gateway.drive import Gateway
from addendum.lab.server import Capture, Lab

# To make one costs more than a request; no connection outlives its lab.
_CLIENT = httpx2.Client(timeout=30, limits=httpx2.Limits(max_keepalive_connections=0))

FILLER = "This says what the tool does and when it is of use, at some length. " * 4


def schema(number: int) -> dict[str, Any]:
    fields = {f"field_{n}": {"type": "string", "description": "Some field."} for n in range(3)}
    return {"type": "object", "properties": {**fields, f"x{number}": {"type": "string"}}}


class Talk:
    """A conversation of a client with a model of the lab, which obeys `/call NAME JSON`.

    Attributes:
        messages: What the client holds, in its wire's form.
        tools: Names of what it offers now.
        system: Its instructions.
        nodes: What was planned for its requests.
        passed: Why they left as they came.
        calls: Names of what it was asked to call.
    """

    def __init__(
        self,
        lab: Lab,
        route: str,
        gateway: Callable[[], Gateway] | None,
        tools: Sequence[str] = (),
        system: str = "You look after a harbour. " * 120,
    ) -> None:
        provider, _, self.model = route.partition(":")
        self.chat = provider == "openai-chat"
        path = "/chat/completions" if self.chat else "/v1/messages"
        self.url = lab.base_url(provider) + path
        self.gateway = gateway
        self.tools, self.system = list(tools), system
        self.messages: list[Any] = []
        self.nodes: list[Node] = []
        self.passed: list[str] = []
        self.calls: list[str] = []
        self.bodies: list[bytes] = []
        self.more: dict[str, Any] = {}
        self.versions: dict[str, str] = {}

    def fork(self) -> Talk:
        """Return a conversation that goes on from here by itself."""
        other = copy.copy(self)
        other.messages, other.tools = copy.deepcopy(self.messages), list(self.tools)
        return other

    def say(self, text: str) -> str:
        """Say something, run what is called, and return the answer."""
        self.messages.append({"role": "user", "content": text})
        return self.go_on()

    def go_on(self) -> str:
        """Ask the model until it calls nothing."""
        for _ in range(6):
            answer = self.post()
            if self.chat:
                message = answer["choices"][0]["message"]
                self.messages.append(message)
                calls = message.get("tool_calls") or []
                for call in calls:
                    self.calls.append(call["function"]["name"])
                    done = {"role": "tool", "tool_call_id": call["id"], "content": "done"}
                    self.messages.append(done)
                said = message.get("content") or ""
            else:
                self.messages.append({"role": "assistant", "content": answer["content"]})
                calls = [each for each in answer["content"] if each["type"] == "tool_use"]
                self.calls += [each["name"] for each in calls]
                if calls:
                    done = [
                        {"type": "tool_result", "tool_use_id": each["id"], "content": "done"}
                        for each in calls
                    ]
                    self.messages.append({"role": "user", "content": done})
                said = "".join(each.get("text", "") for each in answer["content"])
            if not calls:
                return said
        raise AssertionError("the model never stopped")

    def body(self) -> bytes:
        tools: list[Any] = []
        for name in self.tools:
            text = f"{name}. {self.versions.get(name, '')}{FILLER}"
            own = {"name": name, "description": text}
            shape = schema(len(name))
            if self.chat:
                tools.append({"type": "function", "function": {**own, "parameters": shape}})
            else:
                tools.append({**own, "input_schema": shape})
        value: dict[str, Any] = {"model": self.model}
        if self.chat:
            value["messages"] = [{"role": "system", "content": self.system}, *self.messages]
        else:
            value |= {"max_tokens": 1000, "messages": self.messages}
            mark = {"cache_control": {"type": "ephemeral"}}
            value["system"] = [{"type": "text", "text": self.system, **mark}]
            if self.messages:
                # As a careful client does: the end of each request is marked.
                last = copy.deepcopy(self.messages[-1])
                if isinstance(last["content"], str):
                    last["content"] = [{"type": "text", "text": last["content"]}]
                last["content"][-1] |= mark
                value["messages"] = [*self.messages[:-1], last]
        if tools:
            value["tools"] = tools
        return json.encode({**value, **self.more})

    def post(self) -> Any:
        """Send what is held, and return the answer."""
        headers = {"authorization": "Bearer k", "x-api-key": "k", "anthropic-version": "2023-06-01"}
        body = self.body()
        exchange = self.gateway().begin(self.url, headers, body) if self.gateway else None
        sent = body if exchange is None else exchange.body
        while True:
            extra = {} if exchange is None else exchange.headers
            self.bodies.append(sent)
            response = _CLIENT.post(
                self.url,
                content=sent,
                headers={**headers, **extra, "content-type": "application/json"},
            )
            raw = response.content
            if exchange is None:
                break
            exchange.start(response.status_code, response.headers.get("content-type", ""))
            raw = exchange.feed(raw) + exchange.end()
            if exchange.again is None:
                break
            sent = exchange.again
        if exchange is not None:
            self.passed.append(exchange.passed or "")
            if exchange.node is not None:
                self.nodes.append(exchange.node)
        if response.status_code >= 400:
            raise Refused(raw.decode())
        return json.decode(raw)

    def reasons(self) -> list[str]:
        """Return the breaks that were declared."""
        return [each.reason for node in self.nodes for each in node.breaks]


class Refused(Exception):
    """The provider refused a request."""


def lost(captures: Sequence[Capture]) -> int:
    """Return the tokens that were not read."""
    return uncached(list(captures))
