"""What a provider of the lab gets, and what it gives back: no sockets here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from addendum import encoding
from addendum.lab.facts import CacheFacts
from addendum.lab.refusal import Refusal
from addendum.lab.script import Script


class Switches(msgspec.Struct, frozen=True):
    """What a test may have a provider do otherwise.

    Attributes:
        claude_tool_changes: The weakest form that Claude's endpoint still refuses nothing of:
            `by-value` plays the published API, `by-reference` refuses inline definitions as an
            endpoint does that knows the older beta only, `none` refuses all tool changes.
        deepseek_tool_changes: False: the endpoint refuses `tool_addition` blocks.
        deepseek_deferred_outside: False: deferred entries are part of the prefix.
        openai_additional_tools: False: the endpoint refuses `additional_tools` items.
        compatible_cached_tokens: True: the compatible endpoint reports cached tokens.
        kimi_message_tools: False: Moonshot's endpoint refuses tools in system messages.
        drops_unknown: True: the Claude and Responses endpoints know no tool changes, and leave out
            in silence what they do not know, as local servers do.
        strict_definitions: True: each vendor refuses of a tool's definition what it was reported to
            refuse (`addendum.lab.definitions`).
        refused_shapes: Shapes of a history that every provider of Chat Completions refuses beside
            its own (`addendum.lab.chat_shapes`).
    """

    claude_tool_changes: Literal["by-value", "by-reference", "none"] = "by-value"
    deepseek_tool_changes: bool = True
    deepseek_deferred_outside: bool = True
    openai_additional_tools: bool = True
    compatible_cached_tokens: bool = False
    kimi_message_tools: bool = True
    drops_unknown: bool = False
    strict_definitions: bool = False
    refused_shapes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Call:
    """One request as a provider gets it.

    Attributes:
        headers: Names in lower case.
        body: The body's bytes.
        now: Time at which it arrived, in seconds.
        script: What the model says, or None for the free model.
        switches: What the provider does otherwise.
        path: The path that was posted to; some wires name the model there.
    """

    headers: Mapping[str, str]
    body: bytes
    now: float
    script: Script | None = None
    switches: Switches = field(default_factory=Switches)
    path: str = ""


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a provider.

    Attributes:
        status: HTTP status.
        payload: The JSON body of an answer that does not stream, else empty.
        events: The chunks of an answer that streams.
        usage: The usage it reports; empty for a refusal.
        refusal: The refusal's message, or None.
        headers: Headers besides the content's type and length.
        begin: What happens in the cache when the answer begins.
        end: What happens in the cache when the answer has been sent in full.
    """

    status: int
    payload: bytes = b""
    events: tuple[bytes, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    refusal: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    begin: Callable[[], None] = _nothing
    end: Callable[[], None] = _nothing


class Provider(Protocol):
    """A provider of the lab: its rules and its cache."""

    def answer(self, call: Call) -> Reply:
        """Answer a request, or raise a `Refusal`."""
        ...

    def refuse(self, refusal: Refusal) -> Reply:
        """Return a refusal in the provider's own error shape."""
        ...

    def caches(self, model: str) -> CacheFacts | None:
        """Return how a model is cached here; None if it is not, or there is no such model."""
        ...


def handle(provider: Provider, call: Call) -> Reply:
    """Return what a provider answers; a refusal is an answer too."""
    try:
        return provider.answer(call)
    except Refusal as error:
        return provider.refuse(error)


def json_body(call: Call) -> dict[str, Any]:
    """Return the body of a request, which has to be a JSON object.

    Raises:
        Refusal: It is something else.
    """
    try:
        body = encoding.decode(call.body)
    except encoding.ContentError as error:
        raise Refusal(f"the body could not be parsed as JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refusal("the body is not a JSON object")
    return body  # pyright: ignore[reportUnknownVariableType]


def sse(data: Any, event: str | None = None) -> bytes:
    """Return one server-sent event.

    Args:
        data: Its data, encoded as JSON.
        event: Its name, if the wire gives events names.
    """
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + encoding.encode(data) + b"\n\n"


def pieces(text: str, size: int) -> list[str]:
    """Cut a text into pieces of `size` characters, two at least where it has two characters."""
    size = max(1, min(size, -(-len(text) // 2)))
    return [text[at : at + size] for at in range(0, len(text), size)]
