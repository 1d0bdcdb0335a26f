"""A client's Messages body: its slices, joined with what is ours, and its answer back.

Shapes: Claude docs "Mid-conversation system messages and tool changes", "Prompt caching",
"Streaming messages" (2026-09-26).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import Raw

from addendum import encoding
from addendum.log.values import Call, ToolSchema
from addendum.prompt.blocks import Block, Change, Text
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME, rewrite_direct_call
from addendum.wire.anthropic_messages.build import takes_mark
from addendum.wire.reading import array, table, text
from addendum.wire.splice import (
    GIVEN_UP,
    ClientRequest,
    ClientTool,
    Element,
    Frames,
    JudgeCall,
    PassedOn,
    ReadOnce,
    Role,
    Splicing,
    Withheld,
    bare,
    decoded_event,
    fingerprint,
    items,
    joined,
    listed,
    longest_lifetime,
    members,
    sse,
)

_REASONING = ("thinking", "redacted_thinking")
_TOLD = ("tool_addition", "tool_removal")
_VOLATILE = "x-anthropic-billing-header"
"""Begins a text of the prompt that a client changes with each request (claude-code#68900)."""

_elements = ReadOnce()
_tools = ReadOnce()


def _element(raw: bytes) -> Element:
    message = encoding.decode(raw)
    if not isinstance(message, dict):
        raise PassedOn("not understood")
    return _read_element(raw, cast("dict[str, Any]", message))


def _read_element(raw: bytes, message: dict[str, Any]) -> Element:
    spoken = text(message.get("role"))
    if spoken not in ("user", "assistant", "system"):
        raise PassedOn("not understood")
    role = cast(Role, spoken)
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else array(content)
    meaning: list[Any] = []
    calls: list[str] = []
    reasons = results = False
    for each in blocks:
        block = table(each)
        kind = text(block.get("type"))
        if kind in _TOLD or "tool_reference" in kind:
            raise PassedOn("told by the client itself")
        if kind in _REASONING:
            reasons = True
            continue
        if kind == "text":
            if text(block.get("text")).strip():
                meaning.append(["text", block["text"]])
        elif kind == "tool_use":
            calls.append(text(block.get("name")))
            meaning.append(["use", block.get("id"), block.get("name"), block.get("input") or {}])
        elif kind == "tool_result":
            results = True
            inner = block.get("content")
            if isinstance(inner, list) and b'"tool_reference"' in raw:
                kinds = [text(table(part).get("type")) for part in array(inner)]
                if "tool_reference" in kinds:
                    raise PassedOn("told by the client itself")
            parts = [{"type": "text", "text": inner}] if isinstance(inner, str) else array(inner)
            failed = block.get("is_error") is True
            meaning.append(["result", block.get("tool_use_id"), bare(parts), failed])
        else:
            meaning.append(bare(block))
    beside = {name: value for name, value in message.items() if name not in ("role", "content")}
    identity = fingerprint([role, meaning, bare(beside) if role == "system" else None])
    return Element(raw, role, identity, tuple(calls), results, reasons)


def _tool(raw: bytes) -> ClientTool:
    fields = members(raw)
    fields.pop("cache_control", None)
    own = joined(fields)
    entry = table(encoding.decode(own))
    name = text(entry.get("name"))
    if entry.get("defer_loading"):
        raise PassedOn("told by the client itself")
    if entry.get("type") not in (None, "custom"):
        return ClientTool(name or text(entry.get("type")), own, None)
    if not name or "input_schema" not in fields:
        raise PassedOn("not understood")
    parameters = Raw(bytes(fields["input_schema"]))
    return ClientTool(name, own, ToolSchema(name, text(entry.get("description")), parameters))


class MessagesSplice:
    """Takes bodies of this wire apart and joins them; see `addendum.wire.splice.Splice`."""

    def read(self, body: bytes) -> ClientRequest:
        """Take a client's body apart.

        Raises:
            PassedOn: It cannot be driven.
            AddendumError: It is not what the wire takes.
        """
        fields = members(body)
        if "messages" not in fields:
            raise PassedOn("not understood")
        elements = tuple(_elements.get(bytes(raw), _element) for raw in items(fields["messages"]))
        system = encoding.decode(bytes(fields.get("system", b"null")))
        tools = fields.get("tools", Raw(b"null"))
        declared = [] if bytes(tools) == b"null" else items(tools)
        choice = table(encoding.decode(bytes(fields.get("tool_choice", b"null"))))
        ttl = longest_lifetime(body)
        return ClientRequest(
            fields,
            text(encoding.decode(bytes(fields.get("model", b"null")))),
            (),
            fingerprint(_prompt(system)),
            elements,
            tuple(_tools.get(bytes(each), _tool) for each in declared),
            (text(choice.get("name")),) if choice.get("type") == "tool" else (),
            bytes(fields.get("stream", b"")) == b"true",
            ttl,
        )

    def legal(self, request: ClientRequest, behind: int, *, native: bool) -> bool:
        """Say whether an update may stand behind so many elements.

        System messages stand behind a user's message, and in front of an assistant's or at the end.
        """
        elements = request.elements
        if behind < 1 or elements[behind - 1].role != "user":
            return False
        following = elements[behind].role if behind < len(elements) else "assistant"
        return following in ("assistant", "system") or not (native or elements[behind].results)

    def declared(self, tool: ToolSchema) -> bytes:
        """Return a declaration of ours."""
        value: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.parameters,
        }
        if tool.defer_loading:
            value["defer_loading"] = True
        return encoding.encode(value)

    def write(self, request: ClientRequest, splicing: Splicing) -> bytes:
        """Return the body with what is ours."""
        messages: list[bytes] = []
        marked = set(splicing.mark_at)
        for number, element in enumerate(request.elements, 1):
            pieces = [_message(element, number, splicing)]
            for group in _grouped(splicing.updates.get(number, ())):
                pieces.append(_update(group, splicing))
            if number in marked:
                for place in range(len(pieces) - 1, -1, -1):
                    with_mark = _marked(pieces[place], splicing.mark)
                    if with_mark is not None:
                        pieces[place] = with_mark
                        break
            messages += filter(None, pieces)
        messages += splicing.behind
        fields: dict[str, bytes | Raw] = dict(request.fields)
        tools = list(splicing.tools)
        if splicing.mark_tools and splicing.immediate:
            last = splicing.immediate - 1
            tools[last] = joined({**members(tools[last]), "cache_control": splicing.mark})
        if tools:
            fields["tools"] = listed(tools)
        if splicing.marks != "client":
            fields.pop("cache_control", None)
            if "system" in fields:
                fields["system"] = _unmarked_content(bytes(fields["system"]))
        if splicing.mark_system and "system" in fields:
            fields["system"] = _marked_content(bytes(fields["system"]), splicing.mark) or bytes(
                fields["system"]
            )
        fields["messages"] = listed(messages)
        for name, value in splicing.extra.items():
            fields.setdefault(name, value)
        return joined(fields)

    def answer_identity(self, native: Sequence[Raw]) -> bytes:
        """Return the digest of an answer as the client will send it back."""
        content = [encoding.decode(bytes(block)) for block in native]
        return _read_element(b"", {"role": "assistant", "content": content}).identity

    def hidden_round(self, native: Sequence[Raw], withheld: Sequence[Withheld]) -> list[bytes]:
        """Return the messages that answer withheld calls."""
        results = [
            {
                "type": "tool_result",
                "tool_use_id": each.call_id,
                "content": each.message,
                "is_error": True,
            }
            for each in withheld
        ]
        return [
            b'{"role":"assistant","content":' + listed(native) + b"}",
            encoding.encode({"role": "user", "content": results}),
        ]

    def whole(self, body: bytes, judge: JudgeCall) -> tuple[bytes, list[Withheld], bool]:
        """Return an answer that was not streamed as a client reads it."""
        fields = members(body)
        if "content" not in fields:
            return body, [], False
        kept: list[bytes] = []
        withheld: list[Withheld] = []
        same, called = True, False
        for raw in items(fields["content"]):
            block = members(raw)
            if bytes(block.get("type", b"")) != b'"tool_use"':
                kept.append(bytes(raw))
                continue
            name = text(encoding.decode(bytes(block.get("name", b'""'))))
            known = text(encoding.decode(bytes(block.get("id", b'""'))))
            arguments = bytes(block.get("input", b"{}")).decode()
            verdict = judge(known, name, arguments)
            if isinstance(verdict, Withheld):
                withheld.append(verdict)
                same = False
                continue
            called = True
            if (verdict.name, verdict.arguments) == (name, arguments):
                kept.append(bytes(raw))
                continue
            same = False
            kept.append(
                joined(
                    {
                        **block,
                        "name": encoding.encode(verdict.name),
                        "input": verdict.arguments.encode(),
                    }
                )
            )
        if same:
            return body, [], False
        fields["content"] = Raw(listed(kept))
        return joined(fields), withheld, bool(withheld) and not called

    def given_up(self, body: bytes) -> bytes:
        """Return an answer whose calls were all withheld, with an end that says nothing of them."""
        fields = members(body)
        blocks = items(fields.get("content", b"[]"))
        if not any(members(block).get("type") == b'"text"' for block in blocks):
            blocks = [*blocks, Raw(encoding.encode({"type": "text", "text": GIVEN_UP}))]
        return joined({**fields, "content": listed(blocks), "stop_reason": b'"end_turn"'})

    def filter(self, judge: JudgeCall, *, hold: Callable[[str], bool]) -> MessagesFilter:
        """Return a filter for a stream."""
        return MessagesFilter(judge, hold)


def _prompt(system: Any) -> Any:
    """Return what the prompt text means, without what changes with each request."""
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    blocks = [table(block) for block in array(system)]
    return [bare(block) for block in blocks if not text(block.get("text")).startswith(_VOLATILE)]


# -- messages -------------------------------------------------------------------------------------


def _message(element: Element, number: int, splicing: Splicing) -> bytes:
    """Return an element as it is sent; nothing where nothing of it is left."""
    raw = element.raw
    names = frozenset(name for name in element.calls if splicing.dispatched(number, name))
    spare = element.reasons and number <= splicing.floor
    clear = splicing.marks != "client" and b'"cache_control"' in raw
    if not (names or spare or clear):
        return raw
    fields = members(raw)
    content = bytes(fields["content"]).strip()
    if content[:1] != b"[":
        return raw
    blocks: list[bytes] = []
    for each in items(content):
        block = members(each)
        kind = text(encoding.decode(bytes(block.get("type", b'""'))))
        if spare and kind in _REASONING:
            continue
        if clear:
            each = Raw(_unmarked(bytes(each)))
            block = members(each)
        if names and kind == "tool_use":
            name = text(encoding.decode(bytes(block["name"])))
            if name in names:
                real = Call("", name, bytes(block.get("input", b"{}")).decode())
                own = {
                    **block,
                    "name": encoding.encode(TOOL_DISPATCHER_NAME),
                    "input": rewrite_direct_call(real).encode(),
                }
                blocks.append(joined(own))
                continue
        blocks.append(bytes(each))
    return joined({**fields, "content": listed(blocks)}) if blocks else b""


def _unmarked(raw: bytes) -> bytes:
    """Return a block without marks, inner ones included."""
    if b'"cache_control"' not in raw:
        return raw
    fields = members(raw)
    fields.pop("cache_control", None)
    content = bytes(fields.get("content", b""))
    if content[:1] == b"[":
        fields["content"] = Raw(_unmarked_content(content))
    return joined(fields)


def _unmarked_content(content: bytes) -> bytes:
    if b'"cache_control"' not in content or content.strip()[:1] != b"[":
        return content
    return listed(_unmarked(bytes(each)) for each in items(content))


def _marked_content(content: bytes, mark: bytes) -> bytes | None:
    """Return content with a mark on the last block that takes one."""
    content = content.strip()
    if content[:1] == b'"':
        if content == b'""':
            return None
        return b'[{"type":"text","text":' + content + b',"cache_control":' + mark + b"}]"
    blocks = items(content) if content[:1] == b"[" else []
    for place in range(len(blocks) - 1, -1, -1):
        block = members(blocks[place])
        kind = text(encoding.decode(bytes(block.get("type", b'""'))))
        if takes_mark(kind, blocks[place]):
            blocks[place] = Raw(joined({**block, "cache_control": mark}))
            return listed(blocks)
    return None


def _marked(raw: bytes, mark: bytes) -> bytes | None:
    if not raw:
        return None
    fields = members(raw)
    content = _marked_content(bytes(fields["content"]), mark)
    return None if content is None else joined({**fields, "content": content})


def _grouped(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return blocks by the message that says them: those of one update are one."""
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and groups[-1][-1].seq == block.seq and type(groups[-1][-1]) is type(block):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _update(blocks: Sequence[Block], splicing: Splicing) -> bytes:
    parts = [_block(block, splicing) for block in blocks]
    first = blocks[0]
    role = first.role if isinstance(first, Text) else "system"
    return b'{"role":"' + role.encode() + b'","content":' + listed(parts) + b"}"


def _block(block: Block, splicing: Splicing) -> bytes:
    if isinstance(block, Text):
        return encoding.encode({"type": "text", "text": block.text})
    if not isinstance(block, Change):
        raise PassedOn("no way to tell")
    name = encoding.encode(block.name)
    reference = b'{"type":"tool_reference","name":' + name + b"}"
    if not block.added:
        return b'{"type":"tool_removal","tool":' + reference + b"}"
    if block.definition is None:
        return b'{"type":"tool_addition","tool":' + reference + b"}"
    definition = splicing.definitions[block.definition.definition()]
    return (
        b'{"type":"tool_addition","tool":{"type":"tool_definition","definition":'
        + definition
        + b"}}"
    )


# -- streams --------------------------------------------------------------------------------------


class MessagesFilter:
    """Turns the events of one answer; see `addendum.wire.splice.AnswerFilter`."""

    def __init__(self, judge: JudgeCall, hold: Callable[[str], bool]) -> None:
        self.withheld: list[Withheld] = []
        self.unanswered = False
        self._judge, self._hold = judge, hold
        self._frames = Frames()
        self._shown = 0
        self._called = self._spoke = False
        self._second = False
        self._begin()

    def _begin(self) -> None:
        self._numbers: dict[int, int] = {}
        self._start: dict[str, Any] | None = None
        self._index = -1
        self._pieces: list[str] = []

    def again(self) -> None:
        """Go on with the answer of another request, in the same stream."""
        self.withheld, self.unanswered = [], False
        self._frames = Frames()
        self._second = True
        self._begin()

    @property
    def pending(self) -> bytes:
        """The beginning of an event whose end has not come."""
        return self._frames.pending

    def feed(self, chunk: bytes) -> bytes:
        """Return what a client reads of the next bytes."""
        return b"".join(map(self._frame, self._frames.feed(chunk)))

    def close(self) -> bytes:
        """Return what is left when the answer has ended."""
        return b"".join(map(self._frame, self._frames.close()))

    def give_up(self) -> bytes:
        """Return the end of a stream whose model keeps calling what it cannot."""
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 0}}
        said = b"" if self._spoke else _said(self._shown)
        return said + sse(end, "message_delta") + sse({"type": "message_stop"}, "message_stop")

    def _frame(self, frame: bytes) -> bytes:
        if self.unanswered:
            return b""
        value = decoded_event(frame)
        kind = text(value.get("type")) if value is not None else ""
        if value is None:
            return frame
        if kind == "message_start":
            return b"" if self._second else frame
        if kind == "message_delta" and self.withheld and not self._called:
            self.unanswered = True
            return b""
        index = value.get("index")
        if not isinstance(index, int):
            return frame
        if kind == "content_block_start":
            block = table(value.get("content_block"))
            if block.get("type") == "tool_use":
                if self._hold(text(block.get("name"))):
                    self._start, self._index, self._pieces = value, index, []
                    return b""
                self._called = True
            self._spoke = self._spoke or block.get("type") == "text"
            self._number(index)
        if index == self._index and self._start is not None:
            if kind == "content_block_delta":
                self._pieces.append(text(table(value.get("delta")).get("partial_json")))
                return b""
            return self._settle(frame) if kind == "content_block_stop" else b""
        number = self._numbers.get(index, index)
        return frame if number == index else sse({**value, "index": number}, kind)

    def _number(self, index: int) -> int:
        self._numbers[index] = self._shown
        self._shown += 1
        return self._numbers[index]

    def _settle(self, stop: bytes) -> bytes:
        """Judge the call that is whole, and return the events that tell of it."""
        start = self._start or {}
        block = table(start.get("content_block"))
        written = "".join(self._pieces)
        if not written and block.get("input"):
            written = encoding.encode(block["input"]).decode()
        verdict = self._judge(text(block.get("id")), text(block.get("name")), written or "{}")
        index = self._index
        self._start, self._index = None, -1
        if isinstance(verdict, Withheld):
            self.withheld.append(verdict)
            return b""
        self._called = True
        number = self._number(index)
        begun: dict[str, Any] = {**block, "name": verdict.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": verdict.arguments}
        kind = "content_block_delta"
        end = {"type": "content_block_stop", "index": number}
        return (
            sse({**start, "index": number, "content_block": begun}, "content_block_start")
            + sse({"type": kind, "index": number, "delta": delta}, kind)
            + (stop if number == index else sse(end, "content_block_stop"))
        )


def _said(index: int) -> bytes:
    """Return the events of a text that stands where nothing else is left."""
    whole: tuple[dict[str, Any], ...] = (
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": GIVEN_UP}},
        {"type": "content_block_stop"},
    )
    return b"".join(sse({**each, "index": index}, each["type"]) for each in whole)


__all__ = ["MessagesFilter", "MessagesSplice"]
