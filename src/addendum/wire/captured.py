"""The wire APIs by name, each with what is asked of it by whoever judges a captured request.

Nothing here builds requests. How well a capture fits a wire is a number: `ADDRESS` where nothing
else has such an address or field, `LOOKS` where the body has the wire's own shapes, `MAYBE` where
it could be another one as well, 0 where it is not. Of equals the first in `CAPTURED` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Raw, Struct

from addendum.errors import ConfigurationError
from addendum.log.values import Usage
from addendum.wire import (
    anthropic_messages,
    bedrock_converse,
    gemini,
    openai_chat,
    openai_responses,
)
from addendum.wire.anthropic_messages import parse as anthropic_parse
from addendum.wire.anthropic_messages import segments as anthropic_segments
from addendum.wire.aws_event_stream import AwsEventParser
from addendum.wire.bedrock_converse import parse as converse_parse
from addendum.wire.bedrock_converse import segments as converse_segments
from addendum.wire.gemini import parse as gemini_parse
from addendum.wire.gemini import segments as gemini_segments
from addendum.wire.openai_chat import segments as chat_segments
from addendum.wire.openai_chat import usage as chat_usage
from addendum.wire.openai_responses import parse as responses_parse
from addendum.wire.openai_responses import segments as responses_segments
from addendum.wire.segment import Json, Segment
from addendum.wire.sse import SseEvent, SseParser

CLAUDE_CODE = anthropic_messages.WIRE
"""Wire whose usage the session files of Claude Code hold."""

CODEX = openai_responses.WIRE
"""Wire whose usage the session files of Codex hold."""


class Events(Protocol):
    """Takes the bytes of a stream apart."""

    def feed(self, chunk: bytes) -> Iterable[SseEvent]:
        """Return the events that are complete now."""
        ...

    def close(self) -> Iterable[SseEvent]:
        """Return what is left at the end."""
        ...


class Segments(Protocol):
    """Takes a decoded body apart."""

    def __call__(self, body: bytes | Json, tail: str | None = None) -> tuple[Segment, ...]:
        """Return its segments in cache order."""
        ...


class Captured(Struct, frozen=True):
    """One wire API, as captures of it are read.

    Attributes:
        name: Its name in route data.
        segments: Takes a body apart, in cache order.
        settings: Gives digests of the settings that count for the prefix.
        usage: Reads the tokens that a usage object states.
        speaks: Says how well a request fits it, by path, headers (names in lower case) and body.
        events: Makes what reads the stream of an answer.
    """

    name: str
    segments: Segments
    settings: Callable[[bytes | Json], dict[str, str]]
    usage: Callable[[Raw], Usage]
    speaks: Callable[[str, Mapping[str, str], Json], int]
    events: Callable[[], Events] = SseParser


_ALL = (
    Captured(
        gemini.WIRE,
        gemini_segments.segments,
        gemini_segments.settings,
        gemini_parse.read_usage,
        gemini_segments.speaks,
    ),
    Captured(
        openai_responses.WIRE,
        responses_segments.segments,
        responses_segments.settings,
        lambda raw: (
            responses_parse.parse_body(
                b'{"status":"completed","output":[],"usage":' + raw + b"}"
            ).usage
        ),
        responses_segments.speaks,
    ),
    Captured(
        openai_chat.WIRE,
        chat_segments.segments,
        chat_segments.settings,
        chat_usage.read_usage,
        chat_segments.speaks,
    ),
    Captured(
        bedrock_converse.WIRE,
        converse_segments.segments,
        converse_segments.settings,
        converse_parse.read_usage,
        converse_segments.speaks,
        AwsEventParser,
    ),
    Captured(
        anthropic_messages.WIRE,
        anthropic_segments.segments,
        anthropic_segments.settings,
        lambda raw: (
            anthropic_parse.parse_body(
                b'{"type":"message","stop_reason":"end_turn","content":[],"usage":' + raw + b"}"
            ).usage
        ),
        anthropic_segments.speaks,
    ),
)
CAPTURED: Mapping[str, Captured] = {each.name: each for each in _ALL}


def captured(name: str) -> Captured:
    """Return how captures of a wire API are read.

    Raises:
        ConfigurationError: There is none of that name.
    """
    found = CAPTURED.get(name)
    if found is None:
        raise ConfigurationError(
            f"no segments for wire {name!r}; use one of: {', '.join(sorted(CAPTURED))}"
        )
    return found


def spoken(path: str, headers: Mapping[str, str], body: Json) -> str | None:
    """Return the name of the wire that a request fits best, or None if it fits none.

    Args:
        path: Path of its address without a trailing slash, or empty.
        headers: Its headers, names in lower case.
        body: Its decoded body.
    """
    fits = {each.name: each.speaks(path, headers, body) for each in CAPTURED.values()}
    best = max(fits, key=lambda name: fits[name])
    return best if fits[best] else None
