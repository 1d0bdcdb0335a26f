"""Which calls a person is asked about, in a terminal and on a page, and what they see of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from addendum import encoding
from addendum.agent.calls.approval import Approval, OnRedefinition, Policy
from addendum.errors import ContentError
from addendum.tools.envelope import MAX_ARGUMENTS

AskMode: TypeAlias = Literal["always", "changes", "never"]
"""Which calls are asked about: all; all but those of tools that their server calls read-only."""


def rules(mode: AskMode) -> Approval:
    """Return the rules of approval of a mode; the turn waits while the person is asked."""
    if mode == "never":
        return Approval(default="allow")
    return Approval((Policy("allow", read_only=True),) if mode == "changes" else ())


def on_redefinition(mode: AskMode) -> OnRedefinition:
    """Return what happens in a mode when a tool is defined anew, or calls itself harmless."""
    return "accept" if mode == "never" else "ask"


def as_run(arguments: str, *, indent: int = 2) -> str:
    """Return a call's arguments as the tool gets them, each character to be seen.

    They are decoded, so of a key that stands twice the one that counts is shown, and written again:
    what is no letter, sign or space of its own look is an escape of JSON. Nothing is masked.

    Args:
        arguments: JSON text.
        indent: Spaces of a level; 0 writes one line.
    """
    try:
        value = encoding.decode(arguments or "{}", limit=MAX_ARGUMENTS)
        text = msgspec.json.format(encoding.encode(value), indent=indent).decode()
    except ContentError:
        text = arguments
    return "".join(
        each if each == "\n" or each.isprintable() else encoding.escaped(each) for each in text
    )
