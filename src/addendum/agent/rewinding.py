"""Finds turns, and cuts them from what the model sees, to be said otherwise; the log keeps them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from addendum.agent.state import Latest
from addendum.errors import ConfigurationError
from addendum.log.events import Rewind, SystemMessage, UserMessage
from addendum.log.session_log import SessionLog


class Live(Struct, frozen=True):
    """A turn that the model still sees.

    Attributes:
        turn: Its number.
        place: Where its message stands on the surface.
        text: What the person wrote.
    """

    turn: int
    place: int
    text: str


def live_turns(log: SessionLog) -> list[Live]:
    """Return the turns on the surface, oldest first."""
    found: dict[int, Live] = {}
    for place, node in enumerate(log.surface.nodes):
        if isinstance(node.data, UserMessage):
            found.setdefault(node.data.turn, Live(node.data.turn, place, node.data.text))
    return list(found.values())


def newest(log: SessionLog, turns: int) -> Live:
    """Return the first of the newest `turns` turns.

    Raises:
        ConfigurationError: There are not so many.
    """
    found = live_turns(log)
    if not 0 < turns <= len(found):
        what = f"{turns} turn" if turns == 1 else f"{turns} turns"
        raise ConfigurationError(
            f"cannot rewind {what}; the model sees {len(found) or 'none'}", session=log.session
        )
    return found[-turns]


def numbered(log: SessionLog, turn: int) -> Live:
    """Return the turn with a number.

    Raises:
        ConfigurationError: The model does not see it: it never was, was cut, or is in a summary.
    """
    found = {each.turn: each for each in live_turns(log)}
    if turn not in found:
        names = ", ".join(map(str, found)) or "none"
        raise ConfigurationError(
            f"turn {turn} is not in the conversation as it stands; these are: {names}",
            session=log.session,
        )
    return found[turn]


def last_said(log: SessionLog, latest: Latest) -> Live:
    """Return the turn of the last message.

    Args:
        log: The session's log.
        latest: What it says last.

    Raises:
        ConfigurationError: The model sees none, or it was lost with the process that took it.
    """
    if latest.turn_seq > latest.message_seq:
        raise ConfigurationError(
            "the last message was lost when its process ended; send it anew",
            session=log.session,
        )
    found = live_turns(log)
    if not found:
        raise ConfigurationError(
            "there is no message to ask again: nothing was said yet, or all was cut or summed up; "
            "say it anew",
            session=log.session,
        )
    return found[-1]


def cut(log: SessionLog, first: Live, reason: Literal["rewind", "edit", "retry"] = "rewind") -> int:
    """Cut a turn and all behind it; return the seq of the event.

    Args:
        log: The session's log.
        first: The first turn that goes.
        reason: What for.
    """
    nodes, place = log.surface.nodes, first.place
    # A prompt that this turn appended goes with it; the head stays.
    while place > 1 and isinstance(nodes[place - 1].data, SystemMessage):
        place -= 1
    return log.append(Rewind(first.turn, reason), replace=(nodes[place].seq, nodes[-1].seq)).seq
