"""The wire APIs by name, each with what the loop needs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from addendum.errors import ConfigurationError
from addendum.log.values import Config
from addendum.prompt.blocks import Prompt
from addendum.prompt.projector import WireFacts
from addendum.routes.model import Route
from addendum.wire.answer import Parser
from addendum.wire.anthropic_messages import build as anthropic_build
from addendum.wire.anthropic_messages.parse import AnthropicParser
from addendum.wire.anthropic_messages.rewrite import rewrite as anthropic_rewrite
from addendum.wire.openai_chat import build as chat_build
from addendum.wire.openai_chat.parse import ChatParser
from addendum.wire.openai_chat.rewrite import rewrite as chat_rewrite


class Renderer(Protocol):
    """Renders requests to bodies; keeps what it has encoded."""

    encoded: int

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body."""
        ...


class Wire(Struct, frozen=True):
    """One wire API.

    Attributes:
        name: Its name in route data.
        facts: What it asks of the projection.
        renderer: Makes a renderer for one session on one route.
        parser: Makes a parser for one answer.
        rewrite: Turns direct calls into dispatcher calls in an answer's native items.
    """

    name: str
    facts: WireFacts
    renderer: Callable[[Route], Renderer]
    parser: Callable[[], Parser]
    rewrite: Callable[[tuple[Raw, ...], Mapping[str, str], str], tuple[Raw, ...]]


WIRES: Mapping[str, Wire] = {
    anthropic_build.WIRE: Wire(
        anthropic_build.WIRE,
        anthropic_build.FACTS,
        lambda route: anthropic_build.Renderer(),
        AnthropicParser,
        anthropic_rewrite,
    ),
    chat_build.WIRE: Wire(
        chat_build.WIRE,
        chat_build.FACTS,
        lambda route: chat_build.Renderer(
            cache_key=route.provider == "openai-chat", max_tokens_field=route.max_tokens_field
        ),
        ChatParser,
        chat_rewrite,
    ),
}


def wire(name: str) -> Wire:
    """Return a wire API by name.

    Raises:
        ConfigurationError: There is none of that name.
    """
    try:
        return WIRES[name]
    except KeyError:
        raise ConfigurationError(
            f"no wire API named {name!r}; there are {', '.join(sorted(WIRES))}"
        ) from None


def facts(route: Route) -> WireFacts:
    """Return what a route's wire asks of the projection: its API's facts, by the route's data."""
    api = wire(route.wire).facts
    return msgspec.structs.replace(
        api,
        string_arguments=api.string_arguments,
        marks=min(api.marks, route.cache.max_marks) if route.cache.kind == "marks" else 0,
    )
