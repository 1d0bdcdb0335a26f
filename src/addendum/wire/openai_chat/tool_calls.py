"""The calls of a Chat Completions answer, put together from pieces as servers really send them.

Which call a piece belongs to:

- Calls begun at the same `index` are looked at alone; a piece without one, or with one that is no
  number, may belong to any. Among them the call with the piece's id, else the last one.
- A piece begins a new call if there is none yet; if it has a name and another id; if it has another
  name and arguments have come; and if it has a name and arguments while those of its call have come
  whole: some servers number all calls 0, give none an id, or all the same. The same arguments again
  are a repetition, and `{}` in front of others of the same name a place that is kept free.
- A piece without a name begins a call only if the last one is whole.

The first id counts. A name is joined from its pieces until arguments begin; a repeated one is
skipped, one that holds what came so far replaces it. Arguments are joined as they come; those that
come as an object are their own text, unless text follows.

Seen: can1357/oh-my-pi#2055, HKUDS/nanobot#4059 (one id for two calls), LibreChat-AI/agents#260 (all
at index 0, pieces by id), anomalyco/opencode#25925, vercel/ai#7834, openai/openai-dotnet#428 (no
id), ggml-org/llama.cpp#20198, huggingface/text-generation-inference#2136 (arguments as an object).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum.wire.answer import CallArguments, CallStarted, Delta
from addendum.wire.calls import Draft, Ids
from addendum.wire.endings import came_whole
from addendum.wire.reading import number, slices, table, text


class ToolCalls:
    """The calls of one answer, as they grow."""

    def __init__(self) -> None:
        self.drafts: list[ToolCall] = []
        self._ids = Ids()

    def take(self, piece: Mapping[str, Any], raw: Raw, seed: str) -> None:
        """Add a piece of a call.

        Args:
            piece: An item of `tool_calls`, or a `function_call` of before.
            raw: Its text.
            seed: What is known of the answer, to make an id of.
        """
        function = piece.get("function")
        inner = table(function) or (piece if "name" in piece or "arguments" in piece else {})
        name, ident = text(inner.get("name")), text(piece.get("id"))
        arguments = inner.get("arguments")
        if not (name or ident) and arguments is None and "extra_content" not in piece:
            return
        own = raw if inner is piece else slices(raw).get("function", Raw(b"{}"))
        written = _written(arguments, own)
        call = self._owner(number(piece.get("index")), ident, name, written)
        call.seed = call.seed or f"{seed} {len(self.drafts)} {bytes(raw).decode()}"
        call.given = call.given or ident
        call.add(name, written, isinstance(arguments, str))
        if piece.get("extra_content") is not None:
            # Gemini's compatible endpoint keeps the call's signature here and wants it back.
            call.extra = slices(raw)["extra_content"]

    def _owner(self, index: int | None, ident: str, name: str, written: str) -> ToolCall:
        near = [call for call in self.drafts if index is None or call.index == index]
        near = near or [call for call in self.drafts if call.index is None]
        known = next((call for call in reversed(near) if ident and call.given == ident), None)
        call = known or (near[-1] if near else None)
        if call is None:
            # A first piece without its number, or numbers that grow with each piece.
            begins = bool(name or ident) or not self.drafts or self.drafts[-1].whole
            return self._begun(index) if begins else self.drafts[-1]
        if name:
            stranger = known is None and bool(ident) and bool(call.given)
            renamed = not name.startswith(call.name) and bool(call.written.strip())
            whole = call.whole and written != call.written and bool(written.strip())
            placeholder = call.written.strip() == "{}" and name == call.name
            another = stranger or (renamed and known is None) or (whole and not placeholder)
            return self._begun(index) if another else call
        if ident and known is None and call.given and call.whole:
            return self._begun(index)
        if call.again and written.strip() and call.whole:
            return self._begun(index, call.again)
        return call

    def _begun(self, index: int | None, name: str = "") -> ToolCall:
        call = ToolCall(index, name)
        self.drafts.append(call)
        return call

    def news(self, *, ended: bool) -> list[Delta]:
        """Return what has not been told; nothing of a call before it has id, name and arguments.

        Args:
            ended: Whether the answer has; then each call has an id, and arguments.
        """
        said: list[Delta] = []
        for place, call in enumerate(self.drafts):
            ready = call.given and call.name and call.pieces
            if not call.id and (ready or ended):
                call.id = self._ids.take(call.given, call.seed)
                said.append(CallStarted(place, call.id, call.name))
            if call.id:
                fresh = "".join(call.pieces[call.told :])
                if ended and not call.pieces and call.told == 0:
                    fresh, call.told = "{}", 1
                call.told = max(call.told, len(call.pieces))
                said += [CallArguments(place, fresh)] if fresh else []
        return said


class ToolCall(Draft):
    """A tool call as it grows.

    Attributes:
        index: The number that it came under, if any did.
        given: The id that it came with, or ''.
        again: A name that came behind whole arguments: a repetition, or a call that begins.
        extra: What stands beside it and goes back with it.
        seed: What an id of ours is made of.
        told: How many of its pieces were told.
    """

    def __init__(self, index: int | None, name: str) -> None:
        super().__init__(name=name)
        self.index = index
        self.given = ""
        self.again = ""
        self.extra: Raw | None = None
        self.seed = ""
        self.told = 0
        self._object = False

    @property
    def whole(self) -> bool:
        """Whether its arguments have come whole."""
        last = self.pieces[-1].rstrip()[-1:] if self.pieces else ""
        return last in ("}", '"') and came_whole(self.written)

    def add(self, name: str, written: str, as_text: bool) -> None:
        """Take a piece of it in."""
        if name and name != self.name:
            if name.startswith(self.name):
                self.name = name
            elif not self.written.strip():
                self.name += name
        elif name and self.whole and not written.strip():
            self.again = name
        if not written:
            return
        if written.lstrip()[:1] in ("{", '"') and written == self.written and self.whole:
            return
        if self._object:
            # An object stood for what follows, or for what came so far.
            self.restart()
        self._object = self.mended = not as_text
        self.pieces.append(written)

    def restart(self) -> None:
        """Forget the arguments that came."""
        self.told = 0
        super().restart()


def _written(arguments: Any, function: Raw) -> str:
    """Return a piece of arguments as text."""
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    return bytes(slices(function).get("arguments", Raw(b""))).decode()
