"""The assistant message of a Chat Completions answer as it grows, and as it is sent back.

The item that is sent back is one assistant message with keys in this order: `role`, `content`,
`refusal`, `reasoning_content` or `reasoning`, `reasoning_details`, `tool_calls`. Only these: strict
servers refuse the other fields of their own answers. `content` is null if there are calls and no
text. Of the two reasoning fields the one that came is kept, under its own name, but none where
`reasoning_details` came, which hold the same. An empty `reasoning_content` is kept beside calls:
DeepSeek asks for the field even where the model did not think (EverMind-AI/Raven#297).

`content` may come as a list of chunks (Mistral: BerriAI/litellm#16272, symfony/ai#2422, n8n-io/
n8n#37352). Chunks of text are text. If others are among them, `content` goes back as a list: what
came in pieces of one kind joined, all other chunks as their own text.

Pieces of `reasoning_details` with the same type and index, and ids that agree, are one entry (the
signature often comes last and alone): their text is joined, other fields are set. An entry that
came whole keeps its own text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.wire.answer import Delta, ReasoningDelta, TextDelta
from addendum.wire.openai_chat.tool_calls import ToolCalls
from addendum.wire.reading import array, items, slices, spoken, table, text, values

_JOINED_DETAILS = {"reasoning.text": "text", "reasoning.summary": "summary"}
_THOUGHTS = ("thinking", "reasoning")


class Message:
    """An assistant message as it grows.

    Attributes:
        calls: Its calls.
    """

    def __init__(self) -> None:
        self.calls = ToolCalls()
        self._parts: list[_Part] = []
        self._refusal: list[str] = []
        self._thoughts: list[str] = []
        self._field = ""
        self._empty = False
        self._details: list[_Detail] = []

    @property
    def text(self) -> str:
        """Its text, a refusal's too."""
        said = [part.text for part in self._parts if part.kind == "text"]
        return "".join(said + self._refusal)

    @property
    def reasoning(self) -> str:
        """Its readable reasoning."""
        return "".join(self._thoughts)

    @property
    def refused(self) -> bool:
        """Whether the model itself refused."""
        return bool(self._refusal)

    def take(
        self,
        delta: Mapping[str, Any],
        fields: Callable[[], Mapping[str, Raw]],
        seed: str,
        *,
        ended: bool,
    ) -> tuple[Delta, ...]:
        """Add a delta, or a whole message, and return what is new in it.

        Args:
            delta: What came.
            fields: Gives the text of its fields, where that is needed.
            seed: What is known of the answer, to make ids of.
            ended: Whether it is the last.
        """
        said: list[Delta] = []
        content = delta.get("content")
        if isinstance(content, dict):
            said += self._chunk(table(content), fields()["content"])
        elif isinstance(content, list):
            for chunk, own in zip(array(content), items(fields()["content"]), strict=True):
                said += self._chunk(table(chunk) or {"type": "text", "text": chunk}, own)
        else:
            said += self._say(text(content))
        if refusal := spoken(delta.get("refusal")):
            self._refusal.append(refusal)
            said.append(TextDelta(refusal))
        said += self._think(delta)
        if array(delta.get("reasoning_details")):
            self._detail(items(fields()["reasoning_details"]))
        if delta.get("tool_calls") or delta.get("function_call"):
            for value, own in _calls(delta, fields()):
                self.calls.take(value, own, seed)
        return (*said, *self.calls.news(ended=ended))

    def native(self) -> Raw:
        """Return the item that is sent back."""
        message: dict[str, Any] = {"role": "assistant", "content": self._content()}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._details:
            message["reasoning_details"] = [detail.native() for detail in self._details]
        elif self._field:
            message[self._field] = "".join(self._thoughts)
        elif self._empty and self.calls.drafts:
            message["reasoning_content"] = ""
        if self.calls.drafts:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    **({} if call.extra is None else {"extra_content": call.extra}),
                }
                for call in self.calls.drafts
            ]
        return Raw(encoding.encode(message))

    def _content(self) -> Any:
        if any(part.kind != "text" for part in self._parts):
            return [part.native() for part in self._parts]
        said = "".join(part.text for part in self._parts)
        return said if said or not self.calls.drafts else None

    def _say(self, piece: str) -> list[Delta]:
        if not piece:
            return []
        self._part("text").pieces.append(piece)
        return [TextDelta(piece)]

    def _chunk(self, chunk: Mapping[str, Any], raw: Raw) -> list[Delta]:
        """Add one of the chunks that content may come in."""
        kind = text(chunk.get("type"))
        if kind in _THOUGHTS:
            piece = spoken(chunk)
            part = self._part("thinking")
            part.fields.update(slices(raw))
            if piece:
                part.pieces.append(piece)
                self._thoughts.append(piece)
            return [ReasoningDelta(piece)] if piece else []
        if kind == "refusal":
            self._refusal.append(spoken(chunk))
            return [TextDelta(self._refusal[-1])]
        if isinstance(chunk.get("text"), str):
            return self._say(chunk["text"])
        if kind and kind != "text":
            self._parts.append(_Part("other", raw))
        return []

    def _part(self, kind: str) -> _Part:
        if not self._parts or self._parts[-1].kind != kind:
            self._parts.append(_Part(kind))
        return self._parts[-1]

    def _think(self, delta: Mapping[str, Any]) -> list[Delta]:
        """Add readable reasoning. Servers that send both fields say the same in both."""
        thought = ""
        for field in ("reasoning_content", "reasoning"):
            if field == "reasoning_content" and delta.get(field) == "":
                self._empty = True
            piece = spoken(delta.get(field))
            if piece and not thought:
                thought, self._field = piece, self._field or field
        if not thought:
            return []
        self._thoughts.append(thought)
        return [ReasoningDelta(thought)]

    def _detail(self, pieces: list[Raw]) -> None:
        for raw in pieces:
            if bytes(raw)[:1] != b"{":
                continue
            piece = _Detail(raw)
            if not any(known.absorb(piece) for known in reversed(self._details)):
                self._details.append(piece)


class _Part:
    """A part of the content: text, thinking, or a chunk that is kept as it came."""

    def __init__(self, kind: str, raw: Raw | None = None) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.fields: dict[str, Raw] = {}
        self._raw = raw

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def native(self) -> Any:
        if self.kind == "text":
            return {"type": "text", "text": self.text}
        if self.kind != "thinking":
            return self._raw
        inner = [{"type": "text", "text": self.text}]
        return {"type": "thinking", **self.fields, "thinking": inner}


class _Detail:
    """An entry of `reasoning_details` as it grows."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._value = values(bytes(raw))
        self._fields = slices(raw)
        self._field = _JOINED_DETAILS.get(text(self._value.get("type")))
        self._pieces: list[str] = []

    def absorb(self, piece: _Detail) -> bool:
        """Take a later piece of the same entry in; return False if it is another entry."""
        mine, its = self._value, piece._value
        if self._field is None or self._field != piece._field or "index" not in its:
            return False
        if mine.get("index") != its.get("index"):
            return False
        if mine.get("id") and its.get("id") and mine["id"] != its["id"]:
            return False
        if not self._pieces:
            self._pieces.append(text(mine.get(self._field)))
        self._pieces.append(text(its.get(self._field)))
        stated = {k: v for k, v in piece._fields.items() if bytes(v) != b"null"}
        self._fields.update(stated)
        self._value = {**mine, **{name: its[name] for name in stated}}
        return True

    def native(self) -> Raw:
        if self._field is None or not self._pieces:
            return self._raw
        return Raw(encoding.encode({**self._fields, self._field: "".join(self._pieces)}))


def _calls(
    delta: Mapping[str, Any], fields: Mapping[str, Raw]
) -> list[tuple[Mapping[str, Any], Raw]]:
    """Return the pieces of calls in a delta: of a list, of one alone, of the form of before."""
    given = delta.get("tool_calls")
    if isinstance(given, list):
        pieces = zip(array(given), items(fields["tool_calls"]), strict=True)
        return [(table(value), raw) for value, raw in pieces if table(value)]
    for name in ("tool_calls", "function_call"):
        if isinstance(delta.get(name), dict):
            return [(table(delta[name]), fields[name])]
    return []
