"""Which calls a person is asked about, in a terminal and on a page."""

from __future__ import annotations

from typing import Literal, TypeAlias

from addendum.agent.approval import Approval, OnRedefinition, Policy

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
