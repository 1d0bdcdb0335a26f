"""A client's Chat Completions body: its slices, joined with what is ours, and its answer back.

System and developer messages in front of all others are the system text. Shapes: openai-python
3.57.0 types (2026-11); OpenRouter docs "Prompt caching"; platform.kimi.ai.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Raw

from addendum import encoding
from addendum.log.values import Call, ToolSchema
from addendum.prompt.blocks import Block, Change, Text
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME, rewrite_direct_call
from addendum.wire.reading import array, table, text
from addendum.wire.splice import (
    GIVEN_UP,
    Called,
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
    event_data,
    fingerprint,
    items,
    joined,
    listed,
    longest_lifetime,
    members,
    read_arguments,
    sse,
)

_SPEAKS = re.compile(rb'"content"\s*:\s*"(?!")')
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_ELSEWHERE = ("functions", "function_call")
_ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
}
_elements = ReadOnce()
_tools = ReadOnce()


def _element(raw: bytes) -> Element:
    message = encoding.decode(raw)
    if not isinstance(message, dict):
        raise PassedOn("not understood")
    return _read_element(raw, cast("dict[str, Any]", message))


def _read_element(raw: bytes, message: dict[str, Any]) -> Element:
    role = _ROLES.get(text(message.get("role")))
    if role is None or message.get("function_call"):
        raise PassedOn("not understood")
    if role == "system" and isinstance(message.get("tools"), list):
        raise PassedOn("told by the client itself")
    calls = [table(call) for call in array(message.get("tool_calls"))]
    if any(call.get("type", "function") != "function" for call in calls):
        raise PassedOn("not understood")
    functions = [table(call.get("function")) for call in calls]
    meaning: dict[str, Any] = {
        "role": role,
        "content": _content(message.get("content")),
        "answers": text(message.get("tool_call_id")),
        "refusal": text(message.get("refusal")),
        "calls": [
            [text(call.get("id")), text(each.get("name")), read_arguments(each.get("arguments"))]
            for call, each in zip(calls, functions, strict=True)
        ],
    }
    return Element(
        raw,
        role,
        fingerprint(meaning),
        tuple(text(each.get("name")) for each in functions),
        role == "tool",
        any(message.get(name) is not None for name in _REASONING),
    )


def _content(content: Any) -> Any:
    """Return what a message's content means: one text part is a string, nothing is an empty one."""
    if isinstance(content, list):
        parts = cast("list[Any]", bare(content))
        if len(parts) == 1 and table(parts[0]).get("type") == "text":
            return text(parts[0].get("text"))
        return parts or ""
    return content or ""


def _tool(raw: bytes) -> ClientTool:
    fields = members(raw)
    fields.pop("cache_control", None)
    own = joined(fields)
    entry = table(encoding.decode(own))
    function = table(entry.get("function"))
    if entry.get("defer_loading") or function.get("defer_loading"):
        raise PassedOn("told by the client itself")
    if entry.get("type") != "function":
        named = table(entry.get(text(entry.get("type"))))
        return ClientTool(text(named.get("name")) or text(entry.get("type")), own, None)
    inner = members(fields["function"])
    parameters = inner.get("parameters", Raw(b"null"))
    if bytes(parameters) == b"null":
        parameters = Raw(b'{"type":"object","properties":{}}')
    name = text(function.get("name"))
    if not name:
        raise PassedOn("not understood")
    schema = ToolSchema(name, text(function.get("description")), Raw(bytes(parameters)))
    return ClientTool(name, own, schema)


class ChatSplice:
    """Takes bodies of this wire apart and joins them; see `addendum.wire.splice.Splice`."""

    def read(self, body: bytes) -> ClientRequest:
        """Take a client's body apart.

        Raises:
            PassedOn: It cannot be driven.
            AddendumError: It is not what the wire takes.
        """
        fields = members(body)
        if any(name in fields for name in _ELSEWHERE) or "messages" not in fields:
            raise PassedOn("not understood")
        if bytes(fields.get("n", b"1")) not in (b"1", b"null"):
            raise PassedOn("not understood")
        messages = [bytes(each) for each in items(fields["messages"])]
        elements = [_elements.get(raw, _element) for raw in messages]
        start = 0
        while start < len(elements) and elements[start].role == "system":
            start += 1
        choice = encoding.decode(bytes(fields.get("tool_choice", b"null")))
        tools = fields.get("tools", Raw(b"null"))
        declared = [] if bytes(tools) == b"null" else items(tools)
        return ClientRequest(
            fields,
            text(encoding.decode(bytes(fields.get("model", b"null")))),
            tuple(messages[:start]),
            fingerprint([each.identity.hex() for each in elements[:start]]),
            tuple(elements[start:]),
            tuple(_tools.get(bytes(each), _tool) for each in declared),
            _forced(choice),
            bytes(fields.get("stream", b"")) == b"true",
            longest_lifetime(body),
        )

    def legal(self, request: ClientRequest, behind: int, *, native: bool) -> bool:
        """Say whether an update may stand behind so many elements: not inside a round of calls."""
        elements = request.elements
        if behind < 1 or elements[behind - 1].role not in ("user", "tool"):
            return False
        return behind == len(elements) or elements[behind].role != "tool"

    def declared(self, tool: ToolSchema) -> bytes:
        """Return a declaration of ours."""
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        return encoding.encode({"type": "function", "function": function})

    def write(self, request: ClientRequest, splicing: Splicing) -> bytes:
        """Return the body with what is ours."""
        messages = list(request.front)
        if splicing.marks != "client":
            messages = [_unmarked(raw) for raw in messages]
        if splicing.mark_system and messages:
            messages[-1] = _marked(messages[-1], splicing.mark) or messages[-1]
        marked = set(splicing.mark_at)
        for number, element in enumerate(request.elements, 1):
            blocks = splicing.updates.get(number, ())
            pieces = [_message(element, number, splicing)]
            if blocks:
                told = [_update(group, splicing) for group in _grouped(blocks)]
                if splicing.joined and all(isinstance(block, Text) for block in blocks):
                    pieces[0] = _with_text(pieces[0], [b for b in blocks if isinstance(b, Text)])
                else:
                    pieces += told
            if number in marked:
                _mark_last(pieces, element, splicing.mark)
            messages += pieces
        messages += splicing.behind
        fields: dict[str, bytes | Raw] = dict(request.fields)
        tools = list(splicing.tools)
        if splicing.mark_tools and splicing.immediate:
            last = splicing.immediate - 1
            tools[last] = joined({**members(tools[last]), "cache_control": Raw(splicing.mark)})
        if tools:
            fields["tools"] = listed(tools)
        fields["messages"] = listed(messages)
        for name, value in splicing.extra.items():
            fields.setdefault(name, value)
        return joined(fields)

    def answer_identity(self, native: Sequence[Raw]) -> bytes:
        """Return the digest of an answer as the client will send it back."""
        message = encoding.decode(bytes(native[0]))
        return _read_element(b"", {"role": "assistant", **message}).identity

    def hidden_round(self, native: Sequence[Raw], withheld: Sequence[Withheld]) -> list[bytes]:
        """Return the messages that answer withheld calls."""
        results = [
            encoding.encode({"role": "tool", "tool_call_id": each.call_id, "content": each.message})
            for each in withheld
        ]
        return [*map(bytes, native), *results]

    def whole(self, body: bytes, judge: JudgeCall) -> tuple[bytes, list[Withheld], bool]:
        """Return an answer that was not streamed as a client reads it."""
        fields = members(body)
        choices = items(fields["choices"]) if "choices" in fields else []
        if len(choices) != 1:
            return body, [], False
        choice = members(choices[0])
        message = members(choice["message"])
        if bytes(message.get("tool_calls", b"null")) == b"null":
            return body, [], False
        kept: list[bytes] = []
        withheld: list[Withheld] = []
        same = True
        for raw in items(message["tool_calls"]):
            call = members(raw)
            if "function" not in call:
                kept.append(bytes(raw))
                continue
            function = members(call["function"])
            name = text(encoding.decode(bytes(function.get("name", b'""'))))
            arguments = encoding.decode(bytes(function.get("arguments", b'""')))
            known = text(encoding.decode(bytes(call.get("id", b'""'))))
            plain = arguments if isinstance(arguments, str) else encoding.encode(arguments).decode()
            verdict = judge(known, name, plain)
            if isinstance(verdict, Withheld):
                withheld.append(verdict)
            elif (verdict.name, verdict.arguments) == (name, plain):
                kept.append(bytes(raw))
                continue
            else:
                own = {
                    **function,
                    "name": encoding.encode(verdict.name),
                    "arguments": encoding.encode(verdict.arguments),
                }
                kept.append(joined({**call, "function": joined(own)}))
            same = False
        if same:
            return body, [], False
        if kept:
            message["tool_calls"] = Raw(listed(kept))
        else:
            del message["tool_calls"]
        choice["message"] = Raw(joined(message))
        fields["choices"] = Raw(listed([joined(choice)]))
        return joined(fields), withheld, bool(withheld) and not kept

    def given_up(self, body: bytes) -> bytes:
        """Return an answer whose calls were all withheld, with an end that says nothing of them."""
        fields = members(body)
        choice = members(items(fields["choices"])[0])
        message = members(choice["message"])
        if bytes(message.get("content", b"null")) in (b"null", b'""', b"[]"):
            message["content"] = Raw(encoding.encode(GIVEN_UP))
        choice |= {"message": Raw(joined(message)), "finish_reason": Raw(b'"stop"')}
        return joined({**fields, "choices": listed([joined(choice)])})

    def filter(self, judge: JudgeCall, *, hold: Callable[[str], bool]) -> ChatFilter:
        """Return a filter for a stream."""
        return ChatFilter(judge, hold)


def _forced(choice: Any) -> tuple[str, ...]:
    """Return the names that a choice of tools speaks of."""
    if not isinstance(choice, dict):
        return ()
    value = cast("dict[str, Any]", choice)
    if value.get("type") == "function":
        return (text(table(value.get("function")).get("name")),)
    allowed = array(table(value.get("allowed_tools", value)).get("tools"))
    names = [text(table(table(each).get("function", each)).get("name")) for each in allowed]
    return tuple(names) or ("",)


# -- messages -------------------------------------------------------------------------------------


def _message(element: Element, number: int, splicing: Splicing) -> bytes:
    """Return an element as it is sent."""
    raw = element.raw
    names = tuple(name for name in element.calls if splicing.dispatched(number, name))
    spare = element.reasons and number <= splicing.floor
    clear = splicing.marks != "client" and (
        b'"cache_control"' in raw or b'"prompt_cache_breakpoint"' in raw
    )
    if not (names or spare or clear):
        return raw
    if clear:
        raw = _unmarked(raw)
    if spare:
        fields = members(raw)
        raw = joined({k: v for k, v in fields.items() if k not in _REASONING})
    return _dispatched(raw, frozenset(names)) if names else raw


def _dispatched(raw: bytes, names: frozenset[str]) -> bytes:
    """Return an answer with calls of some names told as calls of the dispatcher."""
    message = members(raw)
    calls: list[bytes] = []
    for each in items(message["tool_calls"]):
        call = members(each)
        function = members(call["function"])
        name = text(encoding.decode(bytes(function["name"])))
        if name in names:
            arguments = text(encoding.decode(bytes(function.get("arguments", b'""'))))
            real = Call("", name, arguments)
            own = {
                **function,
                "name": encoding.encode(TOOL_DISPATCHER_NAME),
                "arguments": encoding.encode(rewrite_direct_call(real)),
            }
            calls.append(joined({**call, "function": joined(own)}))
        else:
            calls.append(bytes(each))
    return joined({**message, "tool_calls": listed(calls)})


def _unmarked(raw: bytes) -> bytes:
    """Return a message without marks; only the parts that carry one are written anew."""
    if b'"cache_control"' not in raw and b'"prompt_cache_breakpoint"' not in raw:
        return raw
    fields = members(raw)
    fields.pop("cache_control", None)
    content = bytes(fields.get("content", b""))
    if content[:1] == b"[":
        parts = [
            joined(
                {
                    k: v
                    for k, v in members(part).items()
                    if k not in ("cache_control", "prompt_cache_breakpoint")
                }
            )
            for part in items(content)
        ]
        fields["content"] = Raw(listed(parts))
    return joined(fields)


def _marked(raw: bytes, mark: bytes) -> bytes | None:
    """Return a message with a mark on its last text; None if it has no place for one."""
    fields = members(raw)
    content = bytes(fields.get("content", b"null")).strip()
    if content[:1] == b'"' and content != b'""':
        part = b'{"type":"text","text":' + content + b',"cache_control":' + mark + b"}"
        return joined({**fields, "content": listed([part])})
    parts = items(content) if content[:1] == b"[" else []
    for place in range(len(parts) - 1, -1, -1):
        part = members(parts[place])
        if bytes(part.get("type", b"")) == b'"text"' and bytes(part.get("text", b'""')) != b'""':
            parts[place] = Raw(joined({**part, "cache_control": mark}))
            return joined({**fields, "content": listed(parts)})
    return None


def _mark_last(pieces: list[bytes], element: Element, mark: bytes) -> None:
    """Put a mark on the last of an element's messages that takes one."""
    first = 0 if element.role in ("user", "tool") else 1
    for place in range(len(pieces) - 1, first - 1, -1):
        marked = _marked(pieces[place], mark)
        if marked is not None:
            pieces[place] = marked
            return


def _grouped(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return blocks by the message that says them: definitions of one update are one."""
    groups: list[list[Block]] = []
    for block in blocks:
        last = groups[-1][-1] if groups else None
        if isinstance(block, Change) and isinstance(last, Change) and block.seq == last.seq:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _update(blocks: Sequence[Block], splicing: Splicing) -> bytes:
    first = blocks[0]
    if isinstance(first, Text):
        return encoding.encode({"role": first.role, "content": first.text})
    tools: list[bytes] = []
    for block in blocks:
        if not isinstance(block, Change) or block.definition is None:
            raise PassedOn("no way to tell")
        tools.append(splicing.definitions[block.definition.definition()])
    return b'{"role":"system","tools":' + listed(tools) + b"}"


def _with_text(raw: bytes, blocks: Sequence[Text]) -> bytes:
    """Return a message with more text at its end."""
    fields = members(raw)
    content = bytes(fields.get("content", b'""')).strip()
    if content[:1] == b'"':
        added = encoding.encode("".join(f"\n\n{block.text}" for block in blocks))
        fields["content"] = Raw(content[:-1] + added[1:])
    else:
        parts = [encoding.encode({"type": "text", "text": block.text}) for block in blocks]
        fields["content"] = Raw(listed([*items(content), *parts]))
    return joined(fields)


# -- streams --------------------------------------------------------------------------------------


class _HeldCall:
    """A call whose pieces are kept until it is whole."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""

    def take(self, call: Mapping[str, Any]) -> None:
        function = table(call.get("function"))
        self.id = self.id or text(call.get("id"))
        self.name = self.name or text(function.get("name"))
        self.arguments += text(function.get("arguments"))


class ChatFilter:
    """Turns the chunks of one answer; see `addendum.wire.splice.AnswerFilter`."""

    def __init__(self, judge: JudgeCall, hold: Callable[[str], bool]) -> None:
        self.withheld: list[Withheld] = []
        self.unanswered = False
        self._judge, self._hold = judge, hold
        self._frames = Frames()
        self._passed = 0
        self._template: dict[str, Any] = {}
        self._second = self._spoke = False
        self._begin()

    def _begin(self) -> None:
        self._held: dict[int, _HeldCall] = {}
        self._direct: dict[int, int] = {}
        self._last: int = -1

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
        rest = self._frames.close()
        if rest and self._held:
            # Broken off in the midst of a call: nobody knows what it would have been.
            return b""
        out = b"".join(map(self._frame, rest))
        return out + self._settle() if self._held else out

    def give_up(self) -> bytes:
        """Return the end of a stream whose model keeps calling what it cannot."""
        delta = {} if self._spoke else {"content": GIVEN_UP}
        end: dict[str, Any] = {
            **self._template,
            "choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}],
        }
        return sse(end) + b"data: [DONE]\n\n"

    def _frame(self, frame: bytes) -> bytes:
        if self.unanswered:
            return b""
        self._spoke = self._spoke or _SPEAKS.search(frame) is not None
        ends = self.withheld and b"finish" in frame
        begins_anew = self._second and b'"role"' in frame
        if not (self._held or b'"tool_calls"' in frame or ends or begins_anew):
            return frame
        if event_data(frame).strip() == b"[DONE]":
            out = self._settle()
            return b"" if self._over() else out + frame
        value = decoded_event(frame)
        choices: Sequence[Any] = array(value.get("choices")) if value is not None else ()
        if value is None or not choices:
            return frame
        choice = table(choices[0])
        self._template = self._template or {
            k: v for k, v in value.items() if k not in ("choices", "usage")
        }
        out = b""
        delta = dict(table(choice.get("delta")))
        calls = array(delta.pop("tool_calls", None))
        kept: list[Any] = []
        # Clients join the pieces of a field, and the first answer has said whose it is.
        changed = self._second and delta.pop("role", None) is not None
        for each in calls:
            call = table(each)
            number = self._number(call)
            if number != self._last:
                out += self._settle()
                self._last = number
            if number not in self._held:
                name = text(table(call.get("function")).get("name"))
                if number not in self._direct and name and not self._hold(name):
                    self._direct[number] = self._passed
                    self._passed += 1
                if number in self._direct:
                    kept.append({**call, "index": self._direct[number]})
                    changed = changed or self._direct[number] != call.get("index")
                    continue
            changed = True
            held = self._held.setdefault(number, _HeldCall())
            held.take(call)
            if held.name and not self._hold(held.name):
                # Its name came late; from here on its pieces pass as they are.
                del self._held[number]
                self._direct[number] = self._passed
                self._passed += 1
                kept.append(self._shown(self._direct[number], held))
        if choice.get("finish_reason"):
            out += self._settle()
            if self._over():
                return b""
        if not changed:
            return out + frame
        delta |= {"tool_calls": kept} if kept else {}
        if not delta and not choice.get("finish_reason") and not value.get("usage"):
            return out
        shown = {**value, "choices": [{**choice, "delta": delta}]}
        return out + sse(shown)

    def _number(self, call: Mapping[str, Any]) -> int:
        index = call.get("index")
        if isinstance(index, int):
            return int(index)
        return self._last + 1 if call.get("id") or self._last < 0 else self._last

    def _over(self) -> bool:
        """Say whether nothing is left but what was withheld."""
        self.unanswered = bool(self.withheld) and not self._passed
        return self.unanswered

    def _shown(self, number: int, call: _HeldCall) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        return {"index": number, "id": call.id, "type": "function", "function": function}

    def _settle(self) -> bytes:
        """Judge the calls that are whole, and return the chunks that tell of them."""
        out = b""
        for number, held in sorted(self._held.items()):
            del self._held[number]
            verdict = self._judge(held.id, held.name, held.arguments)
            if isinstance(verdict, Withheld):
                self.withheld.append(verdict)
                continue
            held.name, held.arguments = verdict.name, verdict.arguments
            shown = {"tool_calls": [self._shown(self._passed, held)]}
            self._passed += 1
            choice = {"index": 0, "delta": shown, "finish_reason": None}
            out += sse({**self._template, "choices": [choice]})
        return out


__all__ = ["Called", "ChatFilter", "ChatSplice"]
