"""Wires whose clients can be driven: how their bodies are spliced, and where they are posted."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from addendum.wire import anthropic_messages, openai_chat
from addendum.wire.anthropic_messages.splice import MessagesSplice
from addendum.wire.openai_chat.splice import ChatSplice
from addendum.wire.splice import Splice


class ClientWire(Struct, frozen=True):
    """A wire as its clients speak it.

    Attributes:
        splice: How their bodies are taken apart and joined.
        path: The end of every address that they post to.
        anybody: The provider that stands for an address that nobody knows.
    """

    splice: Splice
    path: str
    anybody: str


CLIENT_WIRES: Mapping[str, ClientWire] = {
    anthropic_messages.WIRE: ClientWire(MessagesSplice(), "/messages", "anthropic-compatible"),
    openai_chat.WIRE: ClientWire(ChatSplice(), "/chat/completions", "compatible"),
}
"""By the wire's name."""
