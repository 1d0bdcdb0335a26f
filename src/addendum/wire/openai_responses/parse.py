"""OpenAI Responses: from stream events, or one body, to an `Answer`.

Source of the wire facts: the types of OpenAI's Python SDK 3.57.0.

An item that is sent back is the text of `output_item.done`, byte for byte, in the order of
`output_index`; `output_item.added` is not complete (its `encrypted_content` is another one). An
item whose `done` did not come is taken from the `output` of the last event, else put together from
its pieces. What the provider would refuse is left out: see `addendum.wire.openai_responses.items`.

Which item an event belongs to: the one with its `output_index`, else the one with its id, else the
last one. A second beginning is another item, and so is an end with another id.

An answer has ended when `response.completed` or `response.incomplete` has come, or `[DONE]` behind
something; what ended the latter (`max_output_tokens`, `content_filter`) is its stop word. Events
that are not known are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import StreamBroken
from addendum.log.values import Call, Usage
from addendum.wire.answer import Answer, CallArguments, CallStarted, Delta
from addendum.wire.calls import Ids, assembled, settled
from addendum.wire.endings import details, graver
from addendum.wire.events import is_done, joined_usage, read
from addendum.wire.openai_responses.growing import Item
from addendum.wire.openai_responses.items import replayable
from addendum.wire.reading import array, count, items, number, slices, spoken, table, text, values
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent

_LAST = ("response.completed", "response.incomplete", "response.cancelled")
_ENDS = ("incomplete_details", "stop_details", "status_details")
_PIECES = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "thought",
    "response.reasoning_text.delta": "thought",
    "response.function_call_arguments.delta": "arguments",
}
_WHOLES = {
    "response.output_text.done": ("text", "text"),
    "response.refusal.done": ("refusal", "refusal"),
    "response.reasoning_text.done": ("thought", "text"),
    "response.function_call_arguments.done": ("arguments", "arguments"),
}


class ResponsesParser:
    """Reads one answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._ids = Ids()
        self._calls = 0
        self._id = ""
        self._model = ""
        self._seed = ""
        self._usage: Raw | None = None
        self._stop: str | None = None
        self._details: dict[str, Raw] = {}
        self._done = False

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is JSON that cannot be read.
            ProviderRefused: An error event that blames the request.
            ProviderBusy: Any other error event, or a response that failed.
        """
        if is_done(event):
            self._done = self._done or bool(self._items)
            return ()
        found = read(event, ended=self._stop is not None)
        if found is None:
            return ()
        value, data = found
        self._seed = self._seed or bytes(data).decode()
        kind = text(value.get("type")) or event.event or ""
        if isinstance(value.get("output"), list):
            return self._response("", value, data, ends=True)
        if table(value.get("response")):
            response = table(value["response"])
            ends = kind in _LAST or (
                not kind.startswith("response.") and f"response.{response.get('status')}" in _LAST
            )
            return self._response(kind, response, slices(data)["response"], ends=ends)
        if kind in _LAST:
            self._stop = graver(self._stop, kind.removeprefix("response."))
        if table(value.get("item")):
            begun = kind.endswith("added") or (not kind and not _complete(table(value["item"])))
            return tuple(self._take(value, data, done=not begun))
        if kind in _WHOLES:
            field, name = _WHOLES[kind]
            return tuple(self._rest(self._owner(value, field), field, spoken(value.get(name))))
        piece = spoken(value.get("delta"))
        if not piece or (kind and kind not in _PIECES):
            return ()
        field = _PIECES.get(kind, "")
        item = self._owner(value, field)
        if item.done and item.came(field):
            return ()  # Its end held all of it.
        return tuple(self._grow(item, field, piece))

    def finish(self, most: int | None = None) -> Answer:
        """Return the answer.

        Args:
            most: Tokens of output that the request allows, if it says so.

        Raises:
            StreamBroken: It was cut before its end, or the provider gave it up with nothing said.
        """
        if self._stop is None and not self._done:
            raise StreamBroken(
                "the answer was cut before response.completed; send it again", again=True
            )
        return self._answer(complete=True, most=most)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        return settled(item for item in self._ordered() if item.number is not None)

    # -- whole responses --------------------------------------------------------------------

    def _response(
        self, kind: str, response: Mapping[str, Any], raw: Raw, *, ends: bool
    ) -> tuple[Delta, ...]:
        """Read a response as it begins, goes on, or ends."""
        self._id = self._id or text(response.get("id"))
        self._model = self._model or text(response.get("model"))
        fields, status = slices(raw), text(response.get("status"))
        if table(response.get("usage")):
            self._usage = joined_usage(self._usage, fields["usage"])
        if kind == "response.failed" or status == "failed" or response.get("error"):
            if self._stop is not None:
                return ()
            unsaid = Raw(b'{"code":"failed","message":"the response failed"}')
            error = fields["error"] if response.get("error") else unsaid
            raise stream_error(encoding.encode({"error": error}))
        if not ends:
            return ()
        said: list[Delta] = []
        listed = array(response.get("output"))
        for place, (item, own) in enumerate(
            zip(listed, items(fields["output"]) if listed else (), strict=True)
        ):
            if table(item):
                known = self._listed(place, table(item))
                if not known.done:
                    said += self._fill(known, table(item), own)
        self._details.update(details(response, raw, _ENDS))
        reason = text(table(response.get("incomplete_details")).get("reason"))
        self._stop = graver(self._stop, reason or status or kind.removeprefix("response.") or None)
        self._done = self._done or bool(self._items)
        return tuple(said)

    def _listed(self, place: int, item: Mapping[str, Any]) -> Item:
        """Return the item that one of the last event's list is."""
        ident = text(item.get("id"))
        named = (each for each in self._items if ident and each.item_id == ident)
        known = next(named, None)
        if known is None:
            same = (each for each in self._items if each.index == place)
            known = next((each for each in same if not (each.item_id and ident)), None)
        return known or self._new(place)

    # -- items ------------------------------------------------------------------------------

    def _ordered(self) -> list[Item]:
        return sorted(self._items, key=lambda item: item.index)

    def _new(self, index: int | None) -> Item:
        last = max((item.index for item in self._items), default=-1)
        item = Item(last + 1 if index is None else index)
        self._items.append(item)
        return item

    def _owner(self, value: Mapping[str, Any], field: str) -> Item:
        """Return the item that a piece belongs to, by the rule stated at the top."""
        index, ident = number(value.get("output_index")), text(value.get("item_id"))
        here = [item for item in self._items if item.index == index and item.fits(field)]
        named = [item for item in self._items if ident and item.item_id == ident]
        last = [item for item in self._items if item.fits(field)] if index is None else []
        found = (here or named or last)[-1:]
        return found[0] if found else self._new(index)

    def _take(self, value: Mapping[str, Any], data: Raw, *, done: bool) -> list[Delta]:
        """Take an item, whole or as it begins."""
        item, raw = table(value["item"]), slices(data)["item"]
        index, ident = number(value.get("output_index")), text(item.get("id"))
        field = _FIELDS.get(text(item.get("type")), "")
        here = [
            each
            for each in self._items
            if (index is None or each.index == index)
            and each.fits(field)
            and (each.item_id == ident or not (each.item_id and ident))
            and not (each.begun and not done)
        ]
        # Some servers give all items one id: it counts for what still misses its end.
        named = [each for each in self._items if ident and each.item_id == ident and not each.done]
        found = (here or (named if done else []))[-1:]
        if not done and any(index in (None, each.index) and each.begun for each in named):
            return []  # Told twice.
        known = found[0] if found else self._new(index)
        if known.done:
            return []
        if done:
            return self._fill(known, item, raw)
        known.begin(item)
        return self._announced(known)

    def _fill(self, known: Item, item: Mapping[str, Any], raw: Raw) -> list[Delta]:
        """Take all of an item in."""
        known.begin(item)
        said = self._announced(known)
        said += self._rest(known, known.usual, known.finish(item, raw))
        if known.number is not None and not known.pieces:
            said.append(CallArguments(known.number, "{}"))
        return said

    def _rest(self, item: Item, field: str, whole: str) -> list[Delta]:
        """Take what a whole text holds beyond the pieces that came; where they differ, it counts.

        It does not where it is only their beginning.
        """
        came = item.came(field)
        if whole.startswith(came):
            return self._grow(item, field, whole[len(came) :])
        if item.done and not came.startswith(whole):
            item.replace(field, whole)
        return []

    def _grow(self, item: Item, field: str, piece: str) -> list[Delta]:
        said = item.grow(field, piece) if piece else None
        if said is not None:
            return [said]
        if item.number is None or not piece:
            return []
        return [CallArguments(item.number, piece)]

    def _announced(self, item: Item) -> list[Delta]:
        """Tell of a call once it has begun; then it has an id."""
        if item.kind != "function_call" or item.number is not None:
            return []
        item.number, self._calls = self._calls, self._calls + 1
        item.identify(
            self._ids.take(item.id, f"{self._id or self._seed} {item.number} {item.name}")
        )
        said: list[Delta] = [CallStarted(item.number, item.id, item.name)]
        return [*said, CallArguments(item.number, item.written)] if item.pieces else said

    def _answer(self, *, complete: bool, most: int | None = None) -> Answer:
        ordered = self._ordered()
        if complete:
            for item in ordered:
                self._announced(item)
        natives = [item.native() for item in ordered] if complete else []
        return assembled(
            Answer(
                text="".join(item.text for item in ordered),
                reasoning="".join(item.reasoning for item in ordered),
                native=replayable(raw for raw in natives if raw is not None),
                stop=self._stop,
                usage=_usage(self._usage),
                message_id=self._id or None,
                model=self._model or None,
                complete=complete,
            ),
            [item for item in ordered if item.kind == "function_call"],
            details=self._details,
            refused=any(item.refused for item in ordered),
            most=most,
        )


_FIELDS = {"message": "text", "function_call": "arguments", "reasoning": "thought"}


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed.

    Args:
        body: The response's body: a `response` object.

    Raises:
        StreamBroken: It is no response.
        ProviderRefused: It is an error object that blames the request.
        ProviderBusy: It is any other error object, or a response that failed.
    """
    parser = ResponsesParser()
    parser.feed(SseEvent(None, body))
    return parser.finish()


def _complete(item: Mapping[str, Any]) -> bool:
    """Say whether an item that no event tells to be whole is."""
    return text(item.get("status")) in ("completed", "incomplete")


def _usage(raw: Raw | None) -> Usage:
    """Count an answer's tokens: what was read and written lies inside `input_tokens`."""
    if raw is None:
        return Usage()
    said = values(bytes(raw))
    details = table(said.get("input_tokens_details"))
    return Usage(
        prompt=count(said.get("input_tokens")),
        cache_read=count(details.get("cached_tokens")),
        cache_write=count(details.get("cache_write_tokens")),
        output=count(said.get("output_tokens")),
        raw=raw,
    )
