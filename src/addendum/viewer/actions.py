"""What people do on a page: each is a POST with the page's token, and answers with JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from addendum import encoding
from addendum.agent.calls.approval import Decision, Kind
from addendum.errors import ConfigurationError
from addendum.routes import credentials
from addendum.viewer.render import base_of
from addendum.viewer.room import Room
from addendum.viewer.rooms import House

MAX_MESSAGE = 1_000_000
"""Characters that a message may have."""

LIST_SECONDS = 8.0
"""How long a server that was switched on is waited for before the page says what it has."""

Given = dict[str, Any]
Action = Callable[[House, str, Given], Awaitable[Given]]


def _text(given: Given, name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_MESSAGE:
        raise ConfigurationError(f"{name} is no text of at most {MAX_MESSAGE:,} characters")
    return encoding.clean(value)


def _turn(given: Given) -> int:
    value = given.get("turn")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError("turn is no number of a turn")
    return value


def _flag(given: Given, name: str) -> bool:
    value = given.get(name)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} is neither true nor false")
    return value


async def begin(house: House, session: str, given: Given) -> Given:
    """Start a conversation."""
    text = _text(given, "text")
    if not text.strip():
        raise ConfigurationError("the message is empty; write something")
    name = await house.begin(text, _text(given, "route").strip() or None)
    return {"url": base_of(name)}


async def send(house: House, session: str, given: Given) -> Given:
    """Say something."""
    house.say(await _free(await house.room(session)), _text(given, "text"))
    return {}


async def stop(house: House, session: str, given: Given) -> Given:
    """Stop the turn that runs."""
    (await house.room(session)).stop()
    return {}


async def again(house: House, session: str, given: Given) -> Given:
    """Send a turn's message again, or another one in its place."""
    room = await house.room(session)
    text = _text(given, "text") if "text" in given else None
    await house.again(await _free(room), _turn(given), text)
    return {}


async def fork(house: House, session: str, given: Given) -> Given:
    """Go on with a copy of the conversation."""
    room = await house.room(session)
    turn = _turn(given) if "turn" in given else None
    return {"url": base_of(await house.fork(room, turn))}


async def decide(house: House, session: str, given: Given) -> Given:
    """Decide the calls that wait."""
    decisions = given.get("decisions")
    if not isinstance(decisions, dict):
        raise ConfigurationError("decisions are no object")
    found = {str(call): _decision(each) for call, each in cast("dict[Any, Any]", decisions).items()}
    await house.decide(await house.room(session), found)
    return {}


def _decision(value: Any) -> Decision:
    if not isinstance(value, dict):
        raise ConfigurationError("a decision is no object")
    given = cast("Given", value)
    kind = _text(given, "kind")
    always = given.get("always") is True
    if kind != "edit":
        return Decision(
            cast("Kind", kind), text=_text(given, "text"), always=always and kind == "approve"
        )
    edited = encoding.decode(_text(given, "arguments"))
    if not isinstance(edited, dict):
        raise ConfigurationError('arguments are a JSON object, such as {"path": "x"}')
    return Decision("edit", cast("dict[str, Any]", edited), always=always)


async def switch(house: House, session: str, given: Given) -> Given:
    """Switch a server on or off."""
    room = await _quiet(await house.room(session))
    server = _text(given, "server")
    if _flag(given, "on"):
        await room.session.tools.enable(server)
        room.watched.notify()
        await room.session.registry.settle(LIST_SECONDS)
    else:
        await room.session.tools.disable(server)
    room.watched.notify()
    return {}


async def route(house: House, session: str, given: Given) -> Given:
    """Go on with another route."""
    room = await _quiet(await house.room(session))
    found = house.resolve(_text(given, "route").strip())
    credentials(found)
    room.session.use(found)
    room.watched.notify()
    return {"route": found.full_name}


async def _quiet(room: Room) -> Room:
    """Return a room in which no turn runs.

    Raises:
        ConfigurationError: One runs.
    """
    if room.busy and room.session.log.turn is None:
        # Its log is closed; what is left of it takes a moment.
        with anyio.move_on_after(LIST_SECONDS):
            await room.quiet.wait()
    if room.busy:
        raise ConfigurationError("a turn is running; wait for it or stop it first")
    return room


async def _free(room: Room) -> Room:
    """Return a room in which no turn runs, and none waits for a person.

    Raises:
        ConfigurationError: One does.
    """
    if (await _quiet(room)).session.log.asked is not None:
        raise ConfigurationError("calls wait for a decision; decide them first")
    return room


ACTIONS: dict[str, Action] = {
    "/new": begin,
    "/s/{session}/send": send,
    "/s/{session}/stop": stop,
    "/s/{session}/again": again,
    "/s/{session}/fork": fork,
    "/s/{session}/decide": decide,
    "/s/{session}/switch": switch,
    "/s/{session}/route": route,
}
"""Actions by address."""
