"""Opening a session for people: the prompt that it begins with, the route that it goes on with."""

from __future__ import annotations

from pathlib import Path

from addendum.agent.session import Session
from addendum.log.events import RequestContext, SystemMessage
from addendum.log.session_log import SessionLog
from addendum.paths import read_text

MAX_INSTRUCTIONS = 1024 * 1024
"""Bytes that a file of instructions may have."""


def last_route(log: SessionLog) -> str | None:
    """Return the route that a session was on last."""
    found = (event.data for event in reversed(log.events))
    return next((data.route for data in found if isinstance(data, RequestContext)), None)


def keep_prompt(session: Session) -> None:
    """Have a session go on with the prompt that it has, whatever new ones begin with."""
    for node in reversed(session.log.surface.nodes):
        if isinstance(node.data, SystemMessage) and not node.data.empty:
            session.instructions = node.data.static
            session.conversation_instructions = node.data.conversation
            return


def instructions_of(text: str) -> str:
    """Return instructions, read from a file if they are written as `@FILE`.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    if not text.startswith("@"):
        return text
    place = Path(text[1:])
    return read_text(place, limit=MAX_INSTRUCTIONS, advice="name a text file, or shorten it")
