"""The wire APIs by name, each with what the loop needs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from addendum.errors import ConfigurationError
from addendum.log.values import Config, ToolSchema
from addendum.prompt.blocks import Prompt
from addendum.prompt.wire_facts import WireFacts
from addendum.routes.model import Route
from addendum.routes.schemas import SchemaRules
from addendum.wire import (
    anthropic_messages,
    bedrock_converse,
    gemini,
    openai_chat,
    openai_responses,
)
from addendum.wire.answer import Parser
from addendum.wire.anthropic_messages import build as anthropic_build
from addendum.wire.anthropic_messages.parse import AnthropicParser
from addendum.wire.bedrock_converse import build as converse_build
from addendum.wire.bedrock_converse.parse import ConverseParser
from addendum.wire.gemini import build as gemini_build
from addendum.wire.gemini.parse import GeminiParser
from addendum.wire.openai_chat import build as chat_build
from addendum.wire.openai_chat.parse import ChatParser
from addendum.wire.openai_chat.shapes import answer_shapes, refused_shapes
from addendum.wire.openai_responses import build as responses_build
from addendum.wire.openai_responses.parse import ResponsesParser
from addendum.wire.schemas import screened
from addendum.wire.transport import Framing


class Renderer(Protocol):
    """Renders requests to bodies; keeps what it has encoded."""

    @property
    def encoded(self) -> int:
        """Blocks, prompt texts and declarations encoded so far."""
        ...

    def body(self, prompt: Prompt, config: Config) -> bytes:
        """Return the request body."""
        ...


class MakeRenderer(Protocol):
    """Makes a renderer for one session."""

    def __call__(self, route: Route, rendering: int = 1, avoids: Sequence[str] = ()) -> Renderer:
        """Return a renderer for an epoch on a route.

        Args:
            route: The route.
            rendering: The number that the epoch recorded.
            avoids: The shapes of a history that it avoids.
        """
        ...


class Wire(Struct, frozen=True):
    """One wire API.

    Attributes:
        name: Its name in route data.
        facts: What it asks of the projection.
        renderer: Makes a renderer for one session on one route, by the epoch's rendering.
        parser: Makes a parser for one answer.
        rewrite: Turns direct calls into dispatcher calls in an answer's native items.
        framing: How the events of an answer are framed.
        flag_header: Header that carries beta flags; empty where the wire has none.
        unknowable: How a probe's control is made, by the change: what tells of it, and what
            stands in its place, with `%s` for a word that no provider has.
        by_value: What people call additions that carry their definition.
        refused_shapes: Tells which shapes of a history a refusal is about.
        answer_shapes: Tells which shapes an answer's native item has.
    """

    name: str
    facts: WireFacts
    renderer: MakeRenderer
    parser: Callable[[], Parser]
    rewrite: Callable[[tuple[Raw, ...], Mapping[str, str], str], tuple[Raw, ...]]
    framing: Framing = "sse"
    flag_header: str = ""
    unknowable: Mapping[str, tuple[bytes, bytes]] = {}
    by_value: str = "by-value"
    refused_shapes: Callable[[str], frozenset[str]] = lambda said: frozenset()
    answer_shapes: Callable[[Raw], frozenset[str]] = lambda raw: frozenset()

    def flags(self, prompt: Prompt, block_flags: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the beta flags of a request.

        Args:
            prompt: The request.
            block_flags: Flags sent only where update blocks occur (DeepSeek).
        """
        if not self.flag_header:
            return ()
        flags = prompt.context.betas
        if block_flags and prompt.changes:
            flags = (*flags, *(flag for flag in block_flags if flag not in flags))
        return flags


_ALL = (
    Wire(
        anthropic_messages.WIRE,
        anthropic_build.FACTS,
        lambda route, rendering=1, avoids=(): anthropic_build.Renderer(
            version=route.endpoint.body_version, schemas=route.schemas, rendering=rendering
        ),
        AnthropicParser,
        anthropic_build.rewrite,
        flag_header=anthropic_build.FLAG_HEADER,
        unknowable=anthropic_build.UNKNOWABLE,
    ),
    Wire(
        openai_chat.WIRE,
        chat_build.FACTS,
        lambda route, rendering=1, avoids=(): chat_build.Renderer(
            cache_key=route.cache_key,
            max_tokens_field=route.max_tokens_field,
            parts=_takes_marks(route, chat_build.FACTS),
            reasoning_stand_in=route.capabilities.reasoning_stand_in,
            schemas=route.schemas,
            rendering=rendering,
            avoids=avoids,
        ),
        ChatParser,
        chat_build.rewrite,
        unknowable=chat_build.UNKNOWABLE,
        refused_shapes=refused_shapes,
        answer_shapes=answer_shapes,
    ),
    Wire(
        openai_responses.WIRE,
        responses_build.FACTS,
        lambda route, rendering=1, avoids=(): responses_build.Renderer(
            encrypted_reasoning=route.capabilities.encrypted_reasoning,
            breakpoints=_takes_marks(route, responses_build.FACTS),
            schemas=route.schemas,
            rendering=rendering,
        ),
        ResponsesParser,
        responses_build.rewrite,
        unknowable=responses_build.UNKNOWABLE,
        by_value="items",
    ),
    Wire(
        bedrock_converse.WIRE,
        converse_build.FACTS,
        lambda route, rendering=1, avoids=(): converse_build.Renderer(
            schemas=route.schemas, rendering=rendering
        ),
        ConverseParser,
        converse_build.rewrite,
        "aws",
    ),
    Wire(
        gemini.WIRE,
        gemini_build.FACTS,
        lambda route, rendering=1, avoids=(): gemini_build.Renderer(
            stand_in=route.capabilities.signature_stand_in,
            schemas=route.schemas,
            rendering=rendering,
        ),
        GeminiParser,
        gemini_build.rewrite,
    ),
)
WIRES: Mapping[str, Wire] = {each.name: each for each in _ALL}


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
        call_id=route.id_pattern,
        lookback=route.cache.lookback or api.lookback,
        text_marks=route.cache.text_marks,
        result_marks="tool" in route.cache.mark_roles,
        runs=api.runs and route.cache.runs,
        first_tail_behind=route.capabilities.first_tail_behind,
        tools=route.schemas.tools,
        fits=partial(_fits, route.schemas),
        keyed=api.keyed or bool(route.cache_key or route.cache_key_header),
        marks=min(api.marks, route.cache.max_marks) if _takes_marks(route, api) else 0,
    )


def _fits(rules: SchemaRules, tool: ToolSchema) -> bool:
    return not screened(tool, rules).cut


def _takes_marks(route: Route, api: WireFacts) -> bool:
    """Say whether the endpoint takes the marks of this wire.

    Breakpoints beside implicit ones are new, and a gateway that does not know them may refuse them.
    """
    if api.implicit:
        return route.cache.kind == "boundaries" and route.endpoint.vouched
    return route.cache.kind == "marks"
