"""An output item of Responses as it grows, and as it is sent back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.wire.answer import Delta, ReasoningDelta, TextDelta
from addendum.wire.calls import Draft
from addendum.wire.reading import array, items, legal_object, slices, sound, table, text

_KINDS = {
    "text": "message",
    "refusal": "message",
    "thought": "reasoning",
    "arguments": "function_call",
}


class Item(Draft):
    """An output item as it grows; `id` and `name` are a call's.

    Attributes:
        index: Its `output_index`.
        kind: Its type; '' while none is known.
        item_id: Its own id.
        number: Its place among the calls; None before it was told of.
        begun: Whether its beginning has come.
        refused: Whether the model refused in it.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.kind = ""
        self.item_id = ""
        self.number: int | None = None
        self.begun = False
        self.refused = False
        self._raw: Raw | None = None
        self._whole = ""
        self._text: list[str] = []
        self._thought: list[str] = []
        self._rewritten: dict[str, Any] = {}

    @property
    def done(self) -> bool:
        """Whether the whole item has come."""
        return self._raw is not None

    @property
    def text(self) -> str:
        """Its text, as far as it has come."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """Its readable reasoning, as far as it has come."""
        return "".join(self._thought)

    def fits(self, field: str) -> bool:
        """Say whether a piece of a kind may belong to it."""
        return not self.kind or not field or _KINDS[field] == self.kind

    def came(self, field: str) -> str:
        """Return what has come of a field."""
        match field or self.usual:
            case "arguments":
                return self.written
            case "thought":
                return self.reasoning
            case _:
                return self.text

    @property
    def usual(self) -> str:
        """The field that an item of its kind grows in."""
        return {"function_call": "arguments", "reasoning": "thought"}.get(self.kind, "text")

    def begin(self, item: Mapping[str, Any]) -> None:
        """Take its beginning in, or what names it in the whole."""
        self.begun = True
        self.kind = text(item.get("type")) or self.kind or _guessed(item)
        self.item_id = self.item_id or text(item.get("id"))
        if self.kind == "function_call" and self.number is None:
            self.id = text(item.get("call_id")) or self.id
        self.name = text(item.get("name")) or self.name

    def finish(self, item: Mapping[str, Any], raw: Raw) -> str:
        """Take all of it in; return what it holds of what grows in it."""
        self._raw = raw
        self.open = False
        self.cut = text(item.get("status")) == "incomplete"
        if not text(item.get("type")):
            self._rewritten["type"] = self.kind
        match self.kind:
            case "function_call":
                given = item.get("arguments")
                if given is not None and not isinstance(given, str):
                    self.mended = True
                    self.restart()
                    self._whole = bytes(slices(raw)["arguments"]).decode()
                else:
                    self._whole = text(given)
            case "message":
                parts = [table(part) for part in array(item.get("content"))]
                self.refused = self.refused or any(part.get("refusal") for part in parts)
                said = (text(part.get("text")) or text(part.get("refusal")) for part in parts)
                # A text in place of the list is worth no more than the pieces that came.
                self._whole = "".join(said) or ("" if self._text else text(item.get("content")))
            case "reasoning":
                self._whole = _said(item.get("summary")) + _said(item.get("content"))
            case _:
                pass
        return self._whole

    def grow(self, field: str, piece: str) -> Delta | None:
        """Take a piece in; return what people see of it, which is nothing of arguments."""
        field = field or self.usual
        self.kind = self.kind or _KINDS[field]
        if field == "arguments":
            self.pieces.append(piece)
            return None
        if field == "thought":
            self._thought.append(piece)
            return ReasoningDelta(piece)
        self.refused = self.refused or field == "refusal"
        self._text.append(piece)
        return TextDelta(piece)

    def replace(self, field: str, whole: str) -> None:
        """Put a whole text in the place of pieces that do not add up to it."""
        match field:
            case "arguments":
                self.restart()
                self.pieces.append(whole)
            case "thought":
                self._thought = [whole]
            case _:
                self._text = [whole]

    def identify(self, own: str) -> None:
        """Give a call the id that it goes back under."""
        if own != self.id:
            self._rewritten["call_id"] = own
        self.id = own

    def native(self) -> Raw | None:
        """Return the item that is sent back; None if there is nothing to send."""
        if self._raw is None:
            return self._made()
        changed = dict(self._rewritten)
        own = slices(self._raw)
        fields = sound(own, _SOUND.get(self.kind, {}))
        match self.kind:
            case "":
                return None
            case "function_call":
                needed = {"call_id": self.id, "name": self.name, "arguments": self.arguments}
                changed |= {name: said for name, said in needed.items() if name not in fields}
                if self.mended or (self.written and self.arguments != self._whole):
                    legal = legal_object(self.arguments)
                    changed["arguments"] = "{}" if legal is None else bytes(legal).decode()
            case "message":
                parts = items(fields.get("content", Raw(b"[null]")))
                if self.text != self._whole or not all(map(_is_part, parts)):
                    changed["content"] = (self._part(),)
                changed |= {} if "role" in fields else {"role": "assistant"}
            case "reasoning":
                changed |= {} if "summary" in fields else {"summary": ()}
            case _:
                pass
        if not changed and len(fields) == len(own):
            return self._raw
        return Raw(encoding.encode({**fields, **changed}))

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self.text, "annotations": ()}

    def _made(self) -> Raw | None:
        """Return an item of which only pieces came. Reasoning is sealed, so it cannot be made."""
        match self.kind:
            case "function_call":
                value: dict[str, Any] = {"call_id": self.id, "name": self.name}
                value["arguments"] = self.arguments
            case "message" if self.text:
                value = {"role": "assistant", "status": "completed", "content": [self._part()]}
            case _:
                return None
        return Raw(encoding.encode({"type": self.kind, **value}))


_SOUND = {
    "message": {"type": '"', "id": '"', "role": '"', "status": '"', "content": "["},
    "function_call": {
        "type": '"',
        "id": '"',
        "call_id": '"',
        "name": '"',
        "arguments": '"',
        "status": '"',
    },
    "reasoning": {
        "type": '"',
        "id": '"',
        "status": '"n',
        "summary": "[",
        "content": "[n",
        "encrypted_content": '"n',
    },
}
"""What fields of known kinds of items begin with."""


def _is_part(raw: Raw) -> bool:
    """Say whether an item of a message's content is a part that can be sent back."""
    if bytes(raw)[:1] != b"{":
        return False
    kinds = {"type": '"', "text": '"', "refusal": '"', "annotations": "[n", "logprobs": "[n"}
    fields = slices(raw)
    return "type" in fields and len(sound(fields, kinds)) == len(fields)


def _guessed(item: Mapping[str, Any]) -> str:
    """Return the type of an item that does not say it, by what only such an item has."""
    fields = {"call_id": "function_call", "arguments": "function_call", "summary": "reasoning"}
    return next((kind for name, kind in fields.items() if name in item), "") or (
        "message" if "content" in item and "role" in item else ""
    )


def _said(parts: Any) -> str:
    """Return the text of content parts."""
    return "".join(text(table(part).get("text")) for part in array(parts))
