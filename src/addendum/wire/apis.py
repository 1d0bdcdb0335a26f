"""The wire APIs by name, each with what the loop needs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Raw, Struct

from addendum.errors import ConfigurationError
from addendum.log.values import Config
from addendum.prompt.blocks import Prompt
from addendum.prompt.projector import WireFacts
from addendum.wire import anthropic_messages, openai_chat
from addendum.wire.answer import Parser


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
        renderer: Makes a renderer for one session.
        parser: Makes a parser for one answer.
        rewrite: Turns direct calls into dispatcher calls in an answer's native items.
    """

    name: str
    facts: WireFacts
    renderer: Callable[[], Renderer]
    parser: Callable[[], Parser]
    rewrite: Callable[[tuple[Raw, ...], Mapping[str, str], str], tuple[Raw, ...]]


WIRES: Mapping[str, Wire] = {
    anthropic_messages.build.WIRE: Wire(
        anthropic_messages.build.WIRE,
        anthropic_messages.build.FACTS,
        anthropic_messages.build.Renderer,
        anthropic_messages.parse.AnthropicParser,
        anthropic_messages.rewrite.rewrite,
    ),
    openai_chat.build.WIRE: Wire(
        openai_chat.build.WIRE,
        openai_chat.build.FACTS,
        openai_chat.build.Renderer,
        openai_chat.parse.ChatParser,
        openai_chat.rewrite.rewrite,
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
