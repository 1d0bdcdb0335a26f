"""A conversation as Chat shows it: turns, and in each of them items in their order.

Items are made of a log alone, so a page that was loaded again, or came back after a lost
connection, shows the same.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from addendum.agent.calls.approval import Pending
from addendum.host.asking import as_run
from addendum.log.approvals import ApprovalDecided
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CompactionSummary,
    DeveloperMessage,
    EndSeed,
    Event,
    RequestContext,
    Rewind,
    SystemMessage,
    ToolCall,
    ToolResult,
    TurnEnd,
    UserMessage,
)
from addendum.log.values import Call, Media
from addendum.tell.changes import body, change, in_chat
from addendum.tell.events import describe
from addendum.tell.words import Words
from addendum.viewer.figures import bar
from addendum.viewer.index import Index
from addendum.viewer.text import discreet

SHOWN = 2_000
"""Characters of a tool's arguments or result that a page holds before somebody asks for all."""


_IMAGES = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
"""How files of the kinds begin that a page shows; any other is handed out as bytes to keep."""


def shown_image(medium: Media) -> bool:
    """Say whether a page shows a file: a log may come from anywhere, so its bytes decide."""
    begins = _IMAGES.get(medium.media_type)
    if begins is None:
        return False
    try:
        return base64.b64decode(medium.data[:64], validate=True).startswith(begins)
    except ValueError:
        return False


class Item(Struct, frozen=True):
    """One thing in a conversation.

    Attributes:
        key: Its id on the page.
        kind: What it is; a macro of this name shows it.
        seq: The event it is made of.
        fields: What the macro needs.
    """

    key: str
    kind: str
    seq: int
    fields: dict[str, Any] = {}


class Excerpt(Struct, frozen=True):
    """The beginning of a text, and how long the whole is.

    Attributes:
        text: What is shown.
        size: Characters of the whole.
        cut: Whether there is more.
    """

    text: str
    size: int
    cut: bool


def excerpt(text: str, limit: int = SHOWN) -> Excerpt:
    """Return the beginning of a text, without credentials."""
    text = discreet(text)
    return Excerpt(text[:limit], len(text), len(text) > limit)


def arguments(text: str) -> str:
    """Return JSON with a line for each field and without credentials; other text as it is."""
    text = discreet(text)
    try:
        return msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeError):
        return text


def turns_shown(index: Index, before: int | None, count: int) -> range:
    """Return the turns that a page shows: the last ones, or those in front of a turn."""
    end = index.turns + 1 if before is None else max(0, min(before, index.turns + 1))
    return range(max(0, end - count), end)


def items(
    events: Sequence[Event],
    index: Index,
    turn: int,
    words: Words,
    pending: Sequence[Pending] = (),
    shown: int = SHOWN,
) -> list[Item]:
    """Return the items of a turn.

    Args:
        events: The log's events.
        index: What is known of them.
        turn: The turn; 0 is what stands in front of the first one.
        words: The reader's language.
        pending: Calls that wait for a person.
        shown: Characters of arguments and results that are held.
    """
    own = [events[seq] for seq in index.span(turn)]
    if turn in index.cut:
        own = [event for event in own if isinstance(event.data, Rewind | EndSeed)]
        return [item for event in own for item in _plain(event, words, turn)]
    # Call ids may be used again in another step.
    results = {(e.data.step, e.data.call_id): e for e in own if isinstance(e.data, ToolResult)}
    started = {(e.data.step, e.data.call_id) for e in own if isinstance(e.data, ToolCall)}
    asked = {each.call_id: each for each in pending}
    found: list[Item] = []
    ended = False
    for event in own:
        data = event.data
        if isinstance(data, AssistantMessage):
            found += _answer(event, data, results, started, asked, shown)
        elif isinstance(data, TurnEnd):
            ended = True
            found += _end(event, data, index, turn)
        else:
            found += _plain(event, words, turn)
    waiting = [item for item in found if item.kind == "ask"]
    if len(waiting) > 1:
        found.append(Item(f"t{turn}-all", "ask_all", waiting[-1].seq, {"count": len(waiting)}))
    if not ended and (figures := bar(index.of_turn(turn))) is not None:
        found.append(Item(f"t{turn}-bar", "bar", found[-1].seq if found else 0, {"bar": figures}))
    return found


def _answer(
    event: Event,
    assistant_message: AssistantMessage,
    results: dict[tuple[int, str], Event],
    started: set[tuple[int, str]],
    asked: dict[str, Pending],
    shown: int,
) -> Iterator[Item]:
    if assistant_message.reasoning:
        yield Item(f"e{event.seq}-r", "thinking", event.seq, {"text": assistant_message.reasoning})
    if assistant_message.text:
        yield Item(f"e{event.seq}", "answer", event.seq, {"text": assistant_message.text})
    for place, call in enumerate(assistant_message.calls):
        own = assistant_message.step, call.id
        yield _call(event.seq, place, call, results.get(own), own in started, asked, shown)


def _call(
    seq: int,
    place: int,
    call: Call,
    result: Event | None,
    started: bool,
    asked: dict[str, Pending],
    limit: int,
) -> Item:
    key = f"e{seq}-c{place}"
    waiting = asked.get(call.id)
    if waiting is not None and result is None:
        fields = {"pending": waiting, "arguments": as_run(waiting.arguments)}
        return Item(key, "ask", seq, fields)
    said = result.data if result is not None else None
    assert said is None or isinstance(said, ToolResult)
    return Item(
        key,
        "call",
        seq,
        {
            "name": call.name,
            "dispatched": call.origin == "dispatched",
            "arguments": excerpt(arguments(call.arguments), limit),
            "brief": excerpt(call.arguments, 200).text,
            "running": started and said is None,
            "result": None if said is None else excerpt(said.text, limit),
            "media": []
            if said is None
            else [(each.media_type, shown_image(each)) for each in said.media],
            "result_seq": None if result is None else result.seq,
            "failed": said is not None and said.is_error,
            "code": None if said is None else said.code,
        },
    )


def _end(event: Event, turn_end: TurnEnd, index: Index, turn: int) -> Iterator[Item]:
    if turn_end.reason != "done":
        fields = {"reason": turn_end.reason, "error": turn_end.error or "", "turn": turn}
        yield Item(f"e{event.seq}", "ended", event.seq, fields)
    if (figures := bar(index.of_turn(turn))) is not None:
        yield Item(f"t{turn}-bar", "bar", event.seq, {"bar": figures})


def _plain(event: Event, words: Words, turn: int) -> Iterator[Item]:
    key, seq, data = f"e{event.seq}", event.seq, event.data
    match data:
        case UserMessage():
            whole = discreet(data.text) == data.text
            fields = {"text": data.text, "turn": data.turn, "tail": data.tail or "", "whole": whole}
            yield Item(key, "user", seq, fields)
        case DeveloperMessage() if in_chat(data):
            moved = change(data, words)
            if moved is None:
                yield Item(key, "context", seq, {"body": excerpt(body(data))})
            else:
                yield Item(key, "notice", seq, {"change": moved})
        case SystemMessage():
            if turn > 1 and not data.empty:
                yield Item(key, "prompt", seq, {"prompt": data})
        case AssistantAttempt():
            fields = {"error": data.error, "text": data.text, "cancelled": data.code == "CANCELLED"}
            yield Item(key, "attempt", seq, fields)
        case ApprovalDecided():
            yield Item(key, "decided", seq, {"decisions": data.decisions})
        case CompactionSummary():
            yield Item(key, "summary", seq, {"text": data.text})
        case RequestContext() if turn <= 1:
            pass  # What a conversation begins with is no news.
        case _:
            telling = describe(event, words)
            if telling.note is not None:
                yield Item(key, "node", seq, {"telling": telling})
