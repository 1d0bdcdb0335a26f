"""What a wire asks of the projection, and the kinds of its own items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from addendum.log.values import ToolSchema

SCREENED = 2
"""First rendering that keeps to what an endpoint takes of definitions."""

REASONING = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Kinds of native items that hold reasoning."""


class _Type(Struct):
    type: str = ""


_type_of = msgspec.json.Decoder(_Type)


def item_type(raw: Raw) -> str:
    """Return the kind of a native item: its `type`, if it has one."""
    return _type_of.decode(raw).type


def fits(tool: ToolSchema) -> bool:
    """Say that a definition can be declared whole."""
    return True


def takes_mark(kind: str, raw: Raw) -> bool:
    """Say whether a mark may stand on a native item: not on reasoning, nor on an empty text."""
    return kind not in REASONING and not (kind == "text" and b'"text":""' in bytes(raw))


class WireFacts(Struct, frozen=True):
    """What a wire asks of the projection beyond the epoch's context.

    Attributes:
        waits: Whether user-role text in mid-run waits for the next user message.
        string_arguments: Whether `call_tool` takes its arguments as a JSON string.
        marks: Most cache marks a request may carry; 0 for none.
        implicit: Whether the provider itself stores the end of the latest user message or result.
        lookback: Positions that a read walks back from a mark, the mark's own included.
        runs: Whether a run of calls, or of results, is one position.
        text_marks: Whether marks stand only on prompt text and in messages of text alone.
        input_marks: Whether marks stand only on text of what goes in: a prompt, a person, a result.
        result_marks: Whether a result may carry a mark.
        first_tail_behind: Whether a moved tail stands behind the human message while that is the
            first message of all.
        needs_tools: Whether a history with calls is refused without any declared tool.
        bare: Takes reasoning out of a native item that holds more than that: gives another one, an
            empty one where nothing is left, or the same object where there is none. None where
            reasoning is items of its own.
        takes_mark: Says whether a mark may stand on a native item, by its kind and itself.
        keyed: Whether every request that may be cached names a cache key.
        kind: Tells the kind of a native item, in the words of `REASONING`, `tool_use` and `text`.
        call_id: Regular expression that a whole call id must match.
        media_apart: Whether files of results stand in a user message behind them.
        tools: Tools that a request may declare; 0 for any number.
        fits: Says whether a definition can be declared whole.
        shaped: Returns an answer's item without what the epoch avoids (`addendum.routes.shapes`),
            its calls under the ids that are sent. None where there is nothing to avoid.
        images_count: Whether the cache of the messages is lost with the first image among them,
            and with the last one's going.
    """

    waits: bool = False
    string_arguments: bool = False
    marks: int = 0
    implicit: bool = False
    lookback: int = 20
    runs: bool = True
    text_marks: bool = False
    input_marks: bool = False
    result_marks: bool = True
    first_tail_behind: bool = False
    needs_tools: bool = False
    bare: Callable[[Raw], Raw] | None = None
    takes_mark: Callable[[str, Raw], bool] = takes_mark
    keyed: bool = False
    kind: Callable[[Raw], str] = item_type
    call_id: str = r"[A-Za-z0-9_-]{1,64}"
    media_apart: bool = False
    tools: int = 0
    fits: Callable[[ToolSchema], bool] = fits
    shaped: Callable[[Raw, Sequence[str], Mapping[str, str]], Raw] | None = None
    images_count: bool = False
