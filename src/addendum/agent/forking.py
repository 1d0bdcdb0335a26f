"""Forks: a child shares a session's log so far, or up to a turn's end, and then goes its own way.

Its log is written in one go with the session itself, or nothing of it is. What a log cannot hold
(functions, connections, the route and the texts of the coming request) it takes from its parent,
which lives in this process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from addendum.agent.driving import drive
from addendum.agent.runtime import Runtime
from addendum.errors import ConfigurationError, Conflict
from addendum.log import codec
from addendum.log.events import Span, ToolPolicy, TurnEnd, TurnStart
from addendum.log.session_log import SessionLog
from addendum.log.store import held, new_id


@asynccontextmanager
async def fork(
    parent: Runtime, session_id: str | None, turn: int | None
) -> AsyncGenerator[Runtime]:
    """Open a child of a session.

    Args:
        parent: The session.
        session_id: The child's id; a random one if None.
        turn: The last turn that it has, and the switches behind it; everything if None.

    Raises:
        ConfigurationError: There was no such turn, or there is a session with this id.
        StoreError: It could not be written; there is no child.
    """
    setup, store = parent.setup, parent.store
    name = new_id() if session_id is None else session_id
    begun = parent.log.fork(name, None if turn is None else end_of(parent.log, turn))
    rows = [codec.encode_event(event) for event in begun.events]
    async with AsyncExitStack() as stack:
        try:
            lease = await stack.enter_async_context(
                held(store, name, parent=parent.id, events=rows)
            )
        except Conflict:
            raise ConfigurationError(
                f"there is a session {name!r} already; use another id"
            ) from None
        log = setup.new_log(name)
        log.extend(rows)
        child = await stack.enter_async_context(drive(setup, log, store, lease))
        child.use(parent.route)
        child.instructions = parent.instructions
        child.conversation_instructions = parent.conversation_instructions
        child.turn_instructions = parent.turn_instructions
        await child.registry.hand_over(parent.registry, child.state.switches.added)
        if child.disabled != begun.disabled:
            # The agent's own were refused again, as in a session that is reopened.
            log.append(ToolPolicy(begun.disabled))
            await child.flush()
        yield child


def end_of(log: SessionLog, turn: int) -> int:
    """Return the last seq of a turn and of what followed it, until the next began or one was cut.

    Raises:
        ConfigurationError: There was no such turn.
    """
    if turn == log.turn:
        return len(log) - 1
    found = False
    for event in log.events:
        if isinstance(event.data, TurnEnd) and event.data.turn == turn:
            found = True
        elif found and (isinstance(event.data, TurnStart) or isinstance(event.surface_op, Span)):
            return event.seq - 1
    if not found:
        raise ConfigurationError(
            f"there was no turn {turn}; the newest is {log.turns}", session=log.session
        )
    return len(log) - 1
