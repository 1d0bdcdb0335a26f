"""Events to bytes and back.

An encoded event is one JSON object: `seq`, `time`, `surface_op`, `sources` where present,
`ignorable` where a reader may skip the type, and `data`, whose `type` names the event type. A field
that this release does not know is refused like an unknown type: it could be content.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal, cast

import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.errors import ContentError, LogError, UnknownEvent
from addendum.log.events import IGNORABLE_TYPES, AssistantMessage, Event, EventData, Span, Unknown


class _Stored(Struct, omit_defaults=True):
    seq: int
    time: int
    data: Raw
    surface_op: Literal["append"] | Span | None = None
    sources: tuple[int, ...] = ()
    ignorable: bool = False


class _Type(Struct):
    type: str


_NO_ITEM = "an item of the answer is no JSON object"
_OBJECT = frozenset(b"{")

# Read in one go; a field of `data` that is not known is refused.
_event = msgspec.json.Decoder(Event)
_envelope = msgspec.json.Decoder(_Stored)
_type = msgspec.json.Decoder(_Type)
_fields = msgspec.json.Decoder(dict[str, Raw])
_known: dict[str, type[Struct]] = {
    str(kind.__struct_config__.tag): kind
    for kind in cast("tuple[type[Struct], ...]", EventData.__args__)
}


def encode_event(event: Event) -> bytes:
    """Return the stored form of an event.

    Raises:
        ContentError: It holds something that no reader would take.
    """
    if isinstance(event.data, AssistantMessage) and not _whole(event.data):
        raise ContentError(_NO_ITEM)
    return encoding.encode(
        _Stored(
            event.seq,
            event.time,
            event.data.raw if isinstance(event.data, Unknown) else Raw(encoding.encode(event.data)),
            event.surface_op,
            event.sources,
            isinstance(event.data, (*IGNORABLE_TYPES, Unknown)),
        )
    )


def decode_event(stored: bytes) -> Event:
    """Return the event; an unknown type that may be ignored comes back as `Unknown`.

    Raises:
        UnknownEvent: The type is unknown and required, or one of its fields is unknown.
        LogError: It is no event.
    """
    try:
        event = _event.decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _strange(stored, error)
    if type(event.data) is Unknown:  # Named like our own word for it.
        return _strange(stored, LogError("it has no type of an event"))
    if isinstance(event.data, AssistantMessage) and not _whole(event.data):
        raise LogError(_NO_ITEM)
    return event


def decode_events(stored: Sequence[bytes], first: int = 0) -> list[Event]:
    """Return the events of many rows: as `decode_event` on each, and quicker.

    Args:
        stored: The rows.
        first: The seq of the first of them, to name one that is damaged.

    Raises:
        UnknownEvent: As `decode_event`.
        LogError: As `decode_event`; its `seq` is the row's.
    """
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        events = list(map(_event.decode, stored))
        data = [event.data for event in events]
        # One pass over many rows at a time: each by itself would take a fifth longer.
        first_bytes = {
            memoryview(item)[0]
            for each in data
            if type(each) is AssistantMessage
            for item in (*each.native, *each.original)
        }
        if Unknown not in set(map(type, data)) and first_bytes <= _OBJECT:
            return events
    events: list[Event] = []
    for raw in stored:
        try:
            events.append(decode_event(raw))
        except LogError as error:
            error.seq = first + len(events)
            raise
    return events


def _whole(answer: AssistantMessage) -> bool:
    """Say whether the wire's own items, which are kept as they came, are objects at least."""
    return {memoryview(item)[0] for item in (*answer.native, *answer.original)} <= _OBJECT


_WELL_FORMED = re.compile(r"[a-z][a-z0-9_/-]*")
"""How every name of ours is written, today and later."""


def _refuse_damage(name: str, known: Iterable[str]) -> None:
    """Refuse a name that is no name of a later release but a damaged one of ours.

    Args:
        name: The name.
        known: Names that could stand in its place.

    Raises:
        LogError: It is so.
    """
    if not _WELL_FORMED.fullmatch(name) or any(_near(name, each) for each in known):
        raise LogError(f"the row is damaged: nothing is named {name[:60]!r}")


def _near(name: str, known: str) -> bool:
    """Say whether two names differ in one place: a sign more, less, or another one."""
    alike = (at for at, (a, b) in enumerate(zip(name, known, strict=False)) if a != b)
    start = next(alike, min(len(name), len(known)))
    a, b = name[start:], known[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:]


def _strange(stored: bytes, problem: Exception) -> Event:
    """Return an event that may be ignored; raise what is wrong with any other."""
    try:
        envelope = _envelope.decode(stored)
        kind = _type.decode(envelope.data).type
        if kind not in _known:
            if envelope.ignorable:
                return Event(envelope.seq, envelope.time, Unknown(envelope.data.copy()))
            _refuse_damage(kind, _known)
            raise UnknownEvent(
                f"the log holds an event of type {kind!r} that this release does not know; "
                "open it with a newer addendum",
                seq=envelope.seq,
            )
        known = {"type", *_known[kind].__struct_fields__}
        named = _fields.decode(envelope.data).keys()
        unknown = named - known
        for name in unknown:
            _refuse_damage(name, known - named)
        if unknown:
            raise UnknownEvent(
                f"{kind} has a field {min(unknown)!r} that this release does not know; "
                "open the log with a newer addendum",
                seq=envelope.seq,
            )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogError(f"the store holds something that is no event: {error}") from error
    raise LogError(f"the store holds something that is no event: {problem}") from problem
