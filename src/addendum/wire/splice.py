"""A client's own request body: taken apart into slices, and joined again with what is ours.

A client's messages stay its own bytes. What is ours is put between them (updates of tools), beside
them (declarations, a cache key) or onto them (a mark, the form of a call); all else that a wire can
say, now or in later versions, passes as it is.

An element is one message. Two elements are the same when they mean the same: marks, reasoning,
the spelling of arguments and the form of a single text do not count, since clients write them
otherwise from one request to the next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Block

Role: TypeAlias = Literal["user", "assistant", "tool", "system"]

PassReason: TypeAlias = Literal[
    "no tools",
    "told by the client itself",
    "history at the provider",
    "rewrites its history each turn",
    "not understood",
    "call_tool taken",
    "two tools of one name",
    "too many tools",
    "forced tool",
    "refused by the endpoint",
    "no way to tell",
    "switched off",
]
"""Why a client's request leaves as it came: a closed list."""


class PassedOn(Exception):
    """A client's request is not changed.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: PassReason) -> None:
        super().__init__(reason)
        self.reason: PassReason = reason


class Element(Struct, frozen=True):
    """One message of a client.

    Attributes:
        raw: Its bytes.
        role: Whose it is; `user` for results as well where the wire has no role for them.
        identity: Digest of what it means.
        calls: Names of what it calls.
        results: Whether it holds results of calls.
        reasons: Whether it holds reasoning.
    """

    raw: bytes
    role: Role
    identity: bytes
    calls: tuple[str, ...] = ()
    results: bool = False
    reasons: bool = False


class ClientTool(Struct, frozen=True):
    """A tool that a client offers.

    Attributes:
        name: Its name.
        raw: Its declaration as the client wrote it, without a mark.
        schema: The same as the model sees it; None where it can only be declared in front.
    """

    name: str
    raw: bytes
    schema: ToolSchema | None

    def digest(self) -> str:
        """Return what says whether two declarations are the same."""
        if self.schema is None:
            return encoding.digest(encoding.canonical(Raw(self.raw)))
        return self.schema.definition()


class ClientRequest(Struct, frozen=True):
    """A request of a client.

    Attributes:
        fields: Fields of the body in the client's order, each its own bytes.
        model: The model's id.
        front: Messages in front of the first element, which make the system text.
        system: Digest of the system text.
        elements: The messages.
        tools: What can be called now.
        forced: Names that the request limits or forces calls to.
        stream: Whether the answer is asked for piece by piece.
        ttl: The longest lifetime of the client's own marks; None if it names none.
    """

    fields: dict[str, Raw]
    model: str
    front: tuple[bytes, ...]
    system: bytes
    elements: tuple[Element, ...]
    tools: tuple[ClientTool, ...]
    forced: tuple[str, ...] = ()
    stream: bool = False
    ttl: Literal["5m", "1h"] | None = None


class Splicing(Struct, frozen=True):
    """What is ours in one request.

    Attributes:
        tools: Declarations in order, without marks.
        immediate: How many of them stand in front of deferred ones.
        updates: Blocks by the number of elements that they stand behind.
        definitions: Declarations as clients wrote them, by the digest of the definition.
        dispatched: Says of an element's number and a name whether the call is told as one of the
            dispatcher.
        floor: Elements up to this number are sent without their reasoning.
        marks: `ours` where the client's marks give way, `client` where they stay.
        mark_tools: Whether the last immediate declaration is marked.
        mark_system: Whether the end of the system text is marked.
        mark_at: Ends to be marked, as numbers of elements.
        mark: What a mark is, as a field.
        joined: Whether user-role text is joined to the message that it stands behind.
        extra: Fields that the body gets unless the client sets them.
        behind: Messages at the end that the client does not know of.
    """

    tools: tuple[bytes, ...]
    immediate: int
    updates: Mapping[int, tuple[Block, ...]]
    definitions: Mapping[str, bytes]
    dispatched: Callable[[int, str], bool]
    floor: int = 0
    marks: Literal["ours", "client", "off"] = "ours"
    mark_tools: bool = False
    mark_system: bool = False
    mark_at: tuple[int, ...] = ()
    mark: bytes = b""
    joined: bool = False
    extra: Mapping[str, bytes] = {}
    behind: tuple[bytes, ...] = ()


GIVEN_UP = "(The model called nothing but tools that are off in this conversation.)"
"""What a client reads where nothing else is left: no API takes an empty answer back."""


class Called(Struct, frozen=True):
    """A call as a client reads it: the real tool, and the text of its arguments."""

    name: str
    arguments: str


class Withheld(Struct, frozen=True):
    """A call that a client never sees.

    Attributes:
        call_id: Its id.
        name: The name that the model called.
        message: What the model reads in place of a result.
    """

    call_id: str
    name: str
    message: str


Verdict: TypeAlias = Called | Withheld
JudgeCall: TypeAlias = Callable[[str, str, str], Verdict]
"""Says of a call's id, name and argument text what a client reads of it."""


class AnswerFilter(Protocol):
    """Turns one answer into what a client reads; a second one joins a first that it withheld.

    Attributes:
        withheld: Calls that were kept back, in order.
        unanswered: Whether nothing but withheld calls was left, so that the model has to be asked
            again.
    """

    withheld: list[Withheld]
    unanswered: bool

    @property
    def pending(self) -> bytes:
        """The beginning of an event whose end has not come."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Return what a client reads of the next bytes."""
        ...

    def close(self) -> bytes:
        """Return what is left when the answer has ended."""
        ...

    def again(self) -> None:
        """Go on with the answer of another request, in the same stream."""
        ...

    def give_up(self) -> bytes:
        """Return the end of a stream whose model keeps calling what it cannot."""
        ...


class Splice(Protocol):
    """How one wire is taken apart and joined."""

    def read(self, body: bytes) -> ClientRequest:
        """Take a client's body apart.

        Raises:
            PassedOn: It cannot be driven.
            AddendumError: It is not what the wire takes.
        """
        ...

    def write(self, request: ClientRequest, splicing: Splicing) -> bytes:
        """Return the body with what is ours."""
        ...

    def legal(self, request: ClientRequest, behind: int, *, native: bool) -> bool:
        """Say whether an update may stand behind so many elements."""
        ...

    def declared(self, tool: ToolSchema) -> bytes:
        """Return a declaration of ours."""
        ...

    def answer_identity(self, native: Sequence[Raw]) -> bytes:
        """Return the digest of an answer as the client will send it back."""
        ...

    def hidden_round(self, native: Sequence[Raw], withheld: Sequence[Withheld]) -> list[bytes]:
        """Return the messages that answer withheld calls."""
        ...

    def whole(self, body: bytes, judge: JudgeCall) -> tuple[bytes, list[Withheld], bool]:
        """Return an answer that was not streamed as a client reads it.

        The calls that were withheld come with it, and whether nothing else was called.
        """
        ...

    def given_up(self, body: bytes) -> bytes:
        """Return an answer whose calls were all withheld, with an end that says nothing of them."""
        ...

    def filter(self, judge: JudgeCall, *, hold: Callable[[str], bool]) -> AnswerFilter:
        """Return a filter for a stream.

        Args:
            judge: Says what a client reads of a call.
            hold: Says of a name whether its call has to be whole before it is judged.
        """
        ...


_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])


def members(raw: bytes | Raw) -> dict[str, Raw]:
    """Return the fields of a JSON object, each as its own bytes.

    Raises:
        PassedOn: It is none.
    """
    try:
        return _object.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PassedOn("not understood") from error


def items(raw: bytes | Raw) -> list[Raw]:
    """Return the items of a JSON list, each as its own bytes.

    Raises:
        PassedOn: It is none.
    """
    try:
        return _array.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PassedOn("not understood") from error


def joined(fields: Mapping[str, bytes | Raw]) -> bytes:
    """Return a JSON object of fields that are JSON already."""
    parts = (encoding.encode(name) + b":" + bytes(value) for name, value in fields.items())
    return b"{" + b",".join(parts) + b"}"


def listed(values: Iterable[bytes | Raw]) -> bytes:
    """Return a JSON list of values that are JSON already."""
    return b"[" + b",".join(map(bytes, values)) + b"]"


def longest_lifetime(body: bytes) -> Literal["1h"] | None:
    """Return the longest lifetime that a client's own marks ask for, if they name it."""
    return "1h" if _HOUR.search(body) else None


_HOUR = re.compile(rb'"ttl"\s*:\s*"1h"')


def fingerprint(value: Any) -> bytes:
    """Return a digest of decoded JSON that key order does not change."""
    return hashlib.sha256(encoding.canonical(value)).digest()


def bare(value: Any) -> Any:
    """Return decoded JSON without cache marks and fields that are null, at every level."""
    if isinstance(value, dict):
        return {
            name: bare(each)
            for name, each in value.items()  # pyright: ignore[reportUnknownVariableType]
            if name not in ("cache_control", "prompt_cache_breakpoint") and each is not None
        }
    if isinstance(value, list):
        return [bare(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def read_arguments(text: Any) -> Any:
    """Return what argument text says; the text itself where it is no JSON."""
    if not isinstance(text, str):
        return text
    try:
        return encoding.decode(text or "{}")
    except encoding.ContentError:
        return text


class ReadOnce:
    """Values by the bytes that they were read from, so that unchanged bytes are not read again.

    Args:
        room: Bytes of keys that are kept; beyond it, it begins anew.
    """

    def __init__(self, room: int = 64 * 1024 * 1024) -> None:
        self._room = room
        self._size = 0
        self._values: dict[bytes, Any] = {}

    def get(self, raw: bytes, read: Callable[[bytes], Any]) -> Any:
        """Return the value of some bytes."""
        value = self._values.get(raw)
        if value is None:
            value = read(raw)
            self._size += len(raw)
            if self._size > self._room:
                self._values, self._size = {}, len(raw)
            self._values[raw] = value
        return value


class Frames:
    """Cuts a stream of server-sent events into its events, byte for byte."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that are whole, with the blank lines behind them."""
        data = self._rest + chunk
        frames: list[bytes] = []
        start = 0
        while True:
            ends = [(data.find(gap, start), len(gap)) for gap in (b"\n\n", b"\r\n\r\n", b"\n\r\n")]
            whole = [(place, size) for place, size in ends if place >= 0]
            if not whole:
                break
            place, size = min(whole)
            frames.append(data[start : place + size])
            start = place + size
        self._rest = data[start:]
        return frames

    @property
    def pending(self) -> bytes:
        """What has no end yet."""
        return self._rest

    def close(self) -> list[bytes]:
        """Return what is left."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def event_data(frame: bytes) -> bytes:
    """Return the data of one event."""
    lines = frame.replace(b"\r\n", b"\n").split(b"\n")
    return b"\n".join(line[5:].lstrip(b" ") for line in lines if line.startswith(b"data:"))


def decoded_event(frame: bytes) -> dict[str, Any] | None:
    """Return what one event says; None if it is no JSON object."""
    try:
        value = encoding.decode(event_data(frame))
    except encoding.ContentError:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def sse(value: Any, name: str = "") -> bytes:
    """Return an event."""
    front = b"event: " + name.encode() + b"\n" if name else b""
    return front + b"data: " + encoding.encode(value) + b"\n\n"
