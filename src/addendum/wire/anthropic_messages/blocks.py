"""A content block of the Messages API as it grows, and as it is sent back.

- A block to which no delta was added is the text of its start block, byte for byte; so is every
  block of a body that was not streamed. Unknown types and unknown fields are thereby kept.
- A block with deltas is joined once. Known types begin with the keys of `_KEY_ORDER`; all other
  fields of the start block follow in the order received, as their own text.
- `text_delta`, `thinking_delta` and `input_json_delta` append; `signature_delta` sets (it comes
  once, before the block stops); `citations_delta` appends to the list. A delta of any other kind
  is merged field by field, in order: text is appended to text, list to list, null changes nothing,
  and anything else replaces what was there. A piece that is no text where one belongs is passed
  over.
- An empty thinking text with a signature is complete and stays. Thinking that a limit cut before
  its signature came is left out: it could not be sent back.
- A tool's input is the model's own JSON text, spaces and escapes included. Where that is no JSON
  object by the rules of `addendum.encoding`, the block carries `{}`, since a block must be legal
  to be sent back; `Call.arguments` keeps the text as it came, so that resolving the call can say
  what is wrong with it.
- A text block that is blank is left out: the API makes such blocks, and answers 400 to a request
  that holds one ("text content blocks must be non-empty", "... contain non-whitespace text"). So is
  a block without a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.wire.calls import Draft
from addendum.wire.reading import items, legal_object, slices, sound, spoken, table, text

_KEY_ORDER = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking", "signature"),
    "tool_use": ("type", "id", "name", "input"),
    "server_tool_use": ("type", "id", "name", "input"),
}
_SOUND = {
    "text": {"type": '"', "text": '"', "citations": "[n"},
    "thinking": {"type": '"', "thinking": '"', "signature": '"'},
    "redacted_thinking": {"type": '"', "data": '"'},
    "tool_use": {"type": '"', "id": '"', "name": '"', "input": "{"},
}
"""What fields of known types begin with."""

_EMPTY_INPUT = Raw(b"{}")
_BY_FIELD = {
    "partial_json": "input_json_delta",
    "thinking": "thinking_delta",
    "signature": "signature_delta",
    "citation": "citations_delta",
    "text": "text_delta",
}
"""What a delta is that does not say its type, by the field it has."""


class Block(Draft):
    """A content block as it grows.

    Attributes:
        kind: Its type; '' while none is known.
        number: Its place among the calls, for `tool_use`; None before it was told of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kind = ""
        self.number: int | None = None
        self._raw: Raw | None = None
        self._fields: dict[str, Raw] = {}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Raw]] = {}
        self._changed = False

    def start(self, value: Mapping[str, Any], raw: Raw, *, whole: bool = False) -> bool:
        """Take the block's beginning in, behind its first pieces too; return False if it had one.

        Args:
            value: The block.
            raw: Its text.
            whole: Whether nothing follows, so that an empty input is one.
        """
        if self._raw is not None:
            return False
        self._raw, self._fields = raw, slices(raw)
        if not text(value.get("type")) and not self.kind:
            # By what only such a block has.
            guesses = {"input": "tool_use", "thinking": "thinking", "text": "text"}
            self.kind = next((kind for name, kind in guesses.items() if name in value), "")
            self._changed = bool(self.kind)
        self.kind = text(value.get("type")) or self.kind
        self.id, self.name = text(value.get("id")), text(value.get("name"))
        for field, pieces in self._texts.items():
            if begun := text(value.get(field)):
                pieces.insert(0, begun)
        given = bytes(self._fields.get("input", b""))
        if self.kind == "tool_use" and not self.pieces and given not in (b"", b"null"):
            inner = value.get("input")
            if inner or whole:
                self.mended = True
                self.pieces = [inner if isinstance(inner, str) else given.decode()]
        return True

    @property
    def text(self) -> str:
        """Its text, as far as it has come."""
        return self._joined("text") if self.kind == "text" else ""

    @property
    def thinking(self) -> str:
        """Its readable reasoning, as far as it has come."""
        return self._joined("thinking") if self.kind == "thinking" else ""

    @property
    def blank(self) -> bool:
        """Whether it is nothing that could be sent back."""
        return not self.kind or (self.kind == "text" and not self.text.strip())

    @property
    def unsigned(self) -> bool:
        """Whether it is thinking whose signature has not come."""
        return self.kind == "thinking" and not self._joined("signature")

    def fits(self, kind: str) -> bool:
        """Say whether a delta of a kind may belong to it."""
        match self.kind:
            case "":
                return True
            case "text":
                return kind in ("text_delta", "citations_delta")
            case "thinking":
                return kind in ("thinking_delta", "signature_delta")
            case "tool_use":
                return kind == "input_json_delta"
            case _:
                return True

    def begins_again(self, raw: Raw) -> bool:
        """Say whether a start is its own, told twice."""
        return self.open and not self._changed and bytes(raw) == bytes(self._raw or b"")

    def grow(self, delta: Mapping[str, Any], raw: Raw) -> str:
        """Take a delta in and return the text that it adds.

        Args:
            delta: The delta.
            raw: Text of the event that it stands in.
        """
        match delta_kind(delta):
            case "text_delta":
                return self._append("text", spoken(delta.get("text")))
            case "thinking_delta":
                return self._append("thinking", spoken(delta.get("thinking")))
            case "input_json_delta":
                return self._argue(delta.get("partial_json"), raw)
            case "signature_delta":
                if isinstance(delta.get("signature"), str):
                    self.kind = self.kind or "thinking"
                    self._texts["signature"] = [delta["signature"]]
                    self._changed = True
            case "citations_delta":
                if table(delta.get("citation")):
                    self._extend("citations", [slices(slices(raw)["delta"])["citation"]])
            case _:
                self._merge(delta, slices(slices(raw)["delta"]))
        return ""

    def native(self) -> Raw:
        """Return the item that is sent back."""
        fields = sound(self._fields, _SOUND.get(self.kind, {}))
        if len(fields) != len(self._fields):
            self._fields, self._changed = fields, True
            if self.kind in ("text", "thinking"):
                self._texts.setdefault(self.kind, [])
        given: dict[str, Any] = {}
        if self.kind == "tool_use" or "input" in self._texts:
            written = self.arguments if self.kind == "tool_use" else self._joined("input")
            legal = legal_object(written)
            same = bytes(self._fields.get("input", b"")) == bytes(legal or b"")
            if not self._changed and same and self._raw is not None:
                return self._raw
            given = {"input": legal or _EMPTY_INPUT}
        elif not self._changed and self._raw is not None:
            return self._raw
        if self.kind == "tool_use":
            given |= {"id": self.id, "name": self.name}
        texts = {field: "".join(pieces) for field, pieces in self._texts.items()}
        whole = {"type": self.kind, **self._fields, **texts, **self._lists, **given}
        whole["type"] = self.kind
        first = _KEY_ORDER.get(self.kind, ())
        ordered = {key: whole[key] for key in first if key in whole}
        return Raw(encoding.encode({**ordered, **whole}))

    def identify(self, own: str) -> None:
        """Give it the id that it goes back under."""
        self._changed = self._changed or own != self.id
        self.id = own

    def _argue(self, piece: Any, raw: Raw) -> str:
        if self.kind not in ("tool_use", ""):
            # Input of a tool that the provider runs itself.
            return self._append("input", text(piece))
        self.kind = "tool_use"
        if piece is None:
            return ""
        if isinstance(piece, str):
            written = piece
        else:
            written = bytes(slices(slices(raw)["delta"])["partial_json"]).decode()
        if self.mended and written.strip():
            # What is under way replaces the start block's.
            self.restart()
            self.mended = False
        self.pieces.append(written)
        self._changed = True
        return written

    def _append(self, field: str, piece: str) -> str:
        """Add text to a field and return what was added."""
        if not piece:
            self._changed = True
            return ""
        if not self.kind:
            self.kind = field
        if field not in self._texts:
            # An input that is under way replaces the start block's `{}`; other text goes on.
            begun = "" if field == "input" else self._joined(field)
            self._texts[field] = [begun] if begun else []
        self._texts[field].append(piece)
        self._changed = True
        return piece

    def _extend(self, field: str, more: list[Raw]) -> None:
        if field not in self._lists:
            begun = self._fields.get(field)
            self._lists[field] = (
                items(begun) if begun is not None and bytes(begun)[:1] == b"[" else []
            )
        self._lists[field].extend(more)
        self._changed = True

    def _merge(self, delta: Mapping[str, Any], raw: Mapping[str, Raw]) -> None:
        """Merge a delta of an unknown kind, by the rule stated at the top."""
        for field, value in delta.items():
            if field == "type" or value is None:
                continue
            if isinstance(value, str) and self._holds(field, self._texts, b'"'):
                self._append(field, value)
            elif isinstance(value, list) and self._holds(field, self._lists, b"["):
                self._extend(field, items(raw[field]))
            else:
                self._texts.pop(field, None)
                self._lists.pop(field, None)
                self._fields[field] = raw[field]
                self._changed = True

    def _joined(self, field: str) -> str:
        if field in self._texts:
            return "".join(self._texts[field])
        raw = bytes(self._fields.get(field, b""))
        return encoding.decode(raw) if raw[:1] == b'"' else ""

    def _holds(self, field: str, grown: Mapping[str, Any], opening: bytes) -> bool:
        """Whether a field holds a kind of value that can grow, or nothing yet."""
        if field in self._texts or field in self._lists:
            return field in grown
        return bytes(self._fields.get(field, b"null"))[:1] in (opening, b"n")


def delta_kind(delta: Mapping[str, Any]) -> str:
    """Return the type of a delta, by the field it has if it does not say its type."""
    said = text(delta.get("type"))
    return said or next((kind for field, kind in _BY_FIELD.items() if field in delta), "")
