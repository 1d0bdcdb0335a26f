"""OpenAI Chat Completions: from stream chunks, or one body, to an `Answer`.

Sources of the wire facts: the types of OpenAI's Python SDK 3.57.0 for the standard fields; the
providers' own pages for `reasoning_content` (DeepSeek: must be sent back on tool turns),
`reasoning_details` (OpenRouter: the array goes back unmodified) and `x_groq` (groq 1.7.0); for the
irregular streams, public bug reports about servers that claim compatibility.

How the message is put together says `addendum.wire.openai_chat.message`, and how its calls are,
`addendum.wire.openai_chat.tool_calls`.

- An answer has ended when a `finish_reason` has come, or `[DONE]` behind something
  (anomalyco/opencode#43882). `[DONE]` and the chunk with the usage may be missing: then the usage
  is unknown. Of several reasons the gravest counts.
- A body that was not streamed is taken as it is, if nothing of it came before.
- A chunk has one choice. Another one beside it, or one with another number, was not asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.errors import StreamBroken
from addendum.log.values import Call
from addendum.wire.answer import Answer, Delta
from addendum.wire.calls import assembled, settled
from addendum.wire.endings import details, graver, stopped
from addendum.wire.events import is_done, joined_usage, read
from addendum.wire.openai_chat.message import Message
from addendum.wire.openai_chat.usage import read_usage
from addendum.wire.reading import array, items, number, slices, table, text
from addendum.wire.refusal import stream_error
from addendum.wire.sse import SseEvent

_ENDS = ("native_finish_reason", "stop_details", "content_filter_results", "content_filter_result")
"""Fields of a choice that say more of how it ended (OpenRouter, gateways, Azure)."""

_BESIDE = frozenset({"error", "usage", *_ENDS})


class ChatParser:
    """Reads one answer (see `addendum.wire.answer.Parser`)."""

    def __init__(self) -> None:
        self._message = Message()
        self._id = ""
        self._model = ""
        self._seed = ""
        self._index: int | None = None
        self._foreign = False
        self._stop: str | None = None
        self._usage: Raw | None = None
        self._details: dict[str, Raw] = {}
        self._begun = False
        self._done = False

    def feed(self, event: SseEvent) -> tuple[Delta, ...]:
        """Take one event and return what it adds.

        Raises:
            StreamBroken: The event is JSON that cannot be read.
            ProviderRefused: A chunk that reports an error and blames the request.
            ProviderBusy: A chunk that reports any other error.
        """
        if is_done(event):
            self._done = True
            return tuple(self._message.calls.news(ended=True))
        found = read(event, ended=self._done and self._stop is not None)
        if found is None:
            return ()
        value, data = found
        self._seed = self._seed or bytes(data).decode()
        self._id = self._id or text(value.get("id"))
        self._model = self._model or text(value.get("model"))
        self._count(value, data)
        choice = self._choice(value)
        if choice.keys() & _BESIDE:
            self._beside(choice, _choice_raw(data))
        stop = text(choice.get("finish_reason"))
        if stop and stop != "null":
            self._stop = graver(self._stop, stop)
        self._groq(value, data)
        names = ("delta",) if self._begun else ("delta", "message")
        name = next((name for name in names if table(choice.get(name))), None)
        if name is None:
            return tuple(self._message.calls.news(ended=True)) if stop else ()
        self._begun = True
        self._done = self._done or name == "message"
        return self._message.take(
            table(choice[name]),
            lambda: slices(slices(_choice_raw(data))[name]),
            self._id or self._seed,
            ended=self._stop is not None,
        )

    def finish(self, most: int | None = None) -> Answer:
        """Return the answer.

        Args:
            most: Tokens of output that the request allows, if it says so.

        Raises:
            StreamBroken: It was cut before its end, or the provider gave it up with nothing said.
        """
        if self._stop is None and not (self._done and self._begun):
            raise StreamBroken(
                "the answer was cut before its finish_reason; send it again", again=True
            )
        return self._answer(complete=True, most=most)

    def partial(self) -> Answer:
        """Return what has arrived so far, for the record of a failed attempt."""
        return self._answer(complete=False)

    def settled(self) -> tuple[Call, ...]:
        """Return the calls that have come whole."""
        # A piece may belong to any earlier call, until the answer says that it has ended; and
        # then the last one may have been cut.
        if self._stop is None or stopped(self._stop).ending != "whole":
            return ()
        for draft in self._message.calls.drafts:
            draft.open = draft.mended = False
        return settled(self._message.calls.drafts)

    def _choice(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the only choice; an empty one for a chunk without one."""
        choices = value.get("choices")
        choice = table(array(choices)[0]) if array(choices) else table(choices)
        index = number(choice.get("index"))
        if self._index is None:
            self._index = index
        foreign = index is not None and index != self._index
        self._foreign = self._foreign or foreign or len(array(choices)) > 1
        return {} if foreign else choice

    def _beside(self, choice: Mapping[str, Any], raw: Raw) -> None:
        """Read what a choice says beside its delta."""
        if table(choice.get("error")):
            raise stream_error(encoding.encode({"error": slices(raw)["error"]}))
        self._count(choice, raw)
        self._details.update(details(choice, raw, _ENDS))

    def _count(self, value: Mapping[str, Any], raw: Raw) -> None:
        """Keep the usage, from the top level or from the choice (Kimi)."""
        if isinstance(value.get("usage"), dict):
            self._usage = joined_usage(self._usage, slices(raw)["usage"])

    def _groq(self, value: Mapping[str, Any], data: Raw) -> None:
        """Read what Groq says beside: usage, and an error that ended the stream early."""
        beside = table(value.get("x_groq"))
        if not beside:
            return
        fields = slices(slices(data)["x_groq"])
        self._count(beside, slices(data)["x_groq"])
        said = text(beside.get("error"))
        if said and self._stop is None:
            raise stream_error(encoding.encode({"error": {"message": said}}))
        if said:
            self._stop = graver(self._stop, "error")
            self._details["x_groq"] = Raw(encoding.encode({"error": fields["error"]}))

    def _answer(self, *, complete: bool, most: int | None = None) -> Answer:
        message, drafts = self._message, self._message.calls.drafts
        if complete:
            message.calls.news(ended=True)
        for place, draft in enumerate(drafts):
            draft.open = place == len(drafts) - 1 and (
                stopped(self._stop).ending != "whole" or not complete
            )
        return assembled(
            Answer(
                text=message.text,
                reasoning=message.reasoning,
                native=(message.native(),) if complete else (),
                stop=self._stop,
                usage=read_usage(self._usage),
                message_id=self._id or None,
                model=self._model or None,
                left_out=("a second choice",) if self._foreign else (),
                complete=complete,
            ),
            drafts,
            details=self._details,
            refused=message.refused,
            most=most,
        )


def parse_body(body: bytes) -> Answer:
    """Parse an answer that was not streamed.

    Args:
        body: The response's body: a `chat.completion` object.

    Raises:
        StreamBroken: It is no chat completion.
        ProviderRefused: It is an error object that blames the request.
        ProviderBusy: It is any other error object.
    """
    parser = ChatParser()
    parser.feed(SseEvent(None, body))
    return parser.finish()


def _choice_raw(data: Raw) -> Raw:
    """Return the text of a chunk's choice, where it has one."""
    raw = slices(data)["choices"]
    return items(raw)[0] if bytes(raw)[:1] == b"[" else raw
