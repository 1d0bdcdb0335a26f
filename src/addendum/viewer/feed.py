"""The event stream of a page: what is new in a session, told as it happens.

Each message carries the place of the last event that it tells of. A browser that lost the
connection says which one it saw last, and goes on from there. One whose session was deleted, or
begun anew under the same name, loads its page again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import msgspec

from addendum.agent.context.epochs import coming
from addendum.agent.session import runtime_of
from addendum.errors import AddendumError, SessionMissing
from addendum.log.events import RequestSent, Rewind
from addendum.masking import Incoming, masked
from addendum.tell.words import Words
from addendum.viewer.chat import items
from addendum.viewer.ledger import Ledger
from addendum.viewer.panel import groups
from addendum.viewer.render import base_of, shown_items, shown_rows, template
from addendum.viewer.room import Room
from addendum.viewer.rooms import House
from addendum.viewer.watch import POLL_SECONDS, Watched

PATIENCE = 15.0
"""Seconds after which a stream says that it is still there."""

PAUSE = 0.08
"""Seconds between two pictures of an answer that comes in."""

MOST_TURNS = 20
"""Turns that a page catches up with; one that missed more is loaded again."""


_encoder = msgspec.json.Encoder(enc_hook=str)
"""What is told is HTML that is marked as such, and so no plain text to the encoder."""


def message(kind: str, data: Any, place: str = "") -> bytes:
    """Return a server-sent event."""
    identity = f"id: {place}\n".encode() if place else b""
    return identity + f"event: {kind}\ndata: ".encode() + _encoder.encode(data) + b"\n\n"


RELOAD = message("reload", {})
"""Has the page loaded again."""


async def chat(house: House, watched: Watched, after: int, words: Words) -> AsyncGenerator[bytes]:
    """Yield what is new in a conversation, as Chat shows it.

    Args:
        house: The house.
        watched: The session.
        after: The last event that the page has.
        words: The reader's language.
    """
    teller = _Chat(house, watched, words)
    seen, place = after, watched.place(min(after, watched.count - 1))
    opened: Room | None = None
    try:
        opened = await house.room(watched.id)
    except AddendumError as error:
        yield message("closed", {"why": masked(str(error))})
    yield b"retry: 1000\n\n"
    last_sent = anyio.current_time()
    while not house.closing.is_set():
        if opened is not None and watched.room is None:
            # It was closed while nobody did anything; looking at it opens it again.
            return
        if watched.seen(place) is None:
            yield RELOAD
            return
        count, version = watched.count, watched.version
        for part in teller.turns(seen):
            yield part
        seen, place = count - 1, watched.place(count - 1)
        for part in await teller.state():
            yield part
        busy = watched.room is not None and watched.room.busy
        # What its servers do wakes nobody, so the panel is looked at from time to time.
        if not await _waited(house, watched, count, version, POLL_SECONDS):
            yield RELOAD
            return
        if anyio.current_time() > last_sent + PATIENCE:
            last_sent = anyio.current_time()
            yield b": still here\n\n"
        if busy:
            # Text that is slow to render is rendered less often.
            await anyio.sleep(max(PAUSE, 4 * teller.spent))


class _Chat:
    """What one page of Chat has been told.

    Attributes:
        spent: Seconds that the last picture of the incoming answer took.
    """

    def __init__(self, house: House, watched: Watched, words: Words) -> None:
        self._house = house
        self._watched = watched
        self._words = words
        self._base = base_of(watched.id)
        self._sent: dict[int, dict[str, str]] = {}
        self._live = ""
        self._panel: tuple[Any, ...] = ()
        self._busy: tuple[bool, bool] | None = None
        self._first = True
        self.spent = 0.0

    def turns(self, seen: int) -> list[bytes]:
        """Return the turns that have something new."""
        watched, index = self._watched, self._watched.index
        count = watched.count
        if not count or (seen >= count - 1 and not self._first):
            return []
        self._first = False
        first = index.turn_of[min(max(seen, 0), count - 1)]
        touched = set(range(first, index.turns + 1))
        for event in watched.log.events[max(0, seen + 1) : count]:
            if isinstance(event.data, Rewind):
                touched.update(range(event.data.to_turn, first))
        if len(touched) > MOST_TURNS:
            return [RELOAD]
        place = watched.place(count - 1)
        return [part for turn in sorted(touched) for part in self._turn(turn, place)]

    def _turn(self, turn: int, place: str) -> list[bytes]:
        watched = self._watched
        room = watched.room
        pending = room.session.pending() if room is not None else ()
        own = items(watched.log.events, watched.index, turn, self._words, pending)
        shown = shown_items(own, self._base, self._words, True)
        before = self._sent.get(turn)
        now = {each.key: each.version for each in shown}
        if before == now:
            return []
        fresh = {
            each.key: [each.version, each.html]
            for each in shown
            if before is None or before.get(each.key) != each.version
        }
        self._sent = {k: v for k, v in self._sent.items() if k > turn - 3} | {turn: now}
        label = self._words("turn.title", turn=turn)
        told = {"turn": turn, "label": label, "order": list(now), "items": fresh}
        return [message("turn", told, place)]

    async def state(self) -> list[bytes]:
        """Return the answer that comes in and the panel, as far as they changed."""
        found: list[bytes] = []
        room = self._watched.room
        began = anyio.current_time()
        live = self._live_html(room)
        self.spent = anyio.current_time() - began
        if live != self._live:
            self._live = live
            found.append(message("live", {"html": live}))
        busy = room is not None and room.busy
        waits = room is not None and self._watched.log.asked is not None
        if (busy, waits) != self._busy:
            self._busy = busy, waits
            found.append(message("state", {"busy": busy, "waits": waits, "open": room is not None}))
        if room is not None and self.moved():
            self._panel = self._signature(room)
            found.append(
                message("panel", {"html": await panel_html(self._house, room, self._words)})
            )
        return found

    def moved(self) -> bool:
        """Say whether something changed that the panel shows."""
        room = self._watched.room
        return room is not None and self._signature(room) != self._panel

    def _signature(self, room: Room) -> tuple[Any, ...]:
        registry = room.session.registry
        states = [(n, registry.is_on(n), registry.state(n)) for n in registry.server_names]
        servers = [(n, on, s.status, s.revision, s.error) for n, on, s in states]
        # While a turn runs nothing can be switched, and no cost is told.
        log = -1 if room.busy else len(room.session.log)
        return (*servers, room.session.route.full_name, room.busy, log)

    def _live_html(self, room: Room | None) -> str:
        if room is None:
            return ""
        live = room.live
        text = reasoning = ""
        if live is not None and not self._watched.index.answered_since(live.since):
            text, reasoning = live.text, live.reasoning
        if not (room.busy or room.error):
            return ""
        waiting = room.busy and self._watched.log.asked is None and not self._running()
        return template(
            "_live.html",
            # Without the word that is still being written: it may become a key.
            text=Incoming().feed(text),
            reasoning=Incoming().feed(reasoning),
            busy=waiting,
            notices=room.notices,
            error=room.error if not self._said(room.error) else "",
            words=self._words,
        )

    def _running(self) -> bool:
        """Say whether a tool runs: its own row tells that the turn goes on."""
        return bool(self._watched.log.unanswered)

    def _said(self, error: str) -> bool:
        """Say whether the log tells of an error, so that it is not told twice."""
        index = self._watched.index
        return not error or index.reasons.get(index.turns) is not None


async def panel_html(house: House, room: Room, words: Words) -> str:
    """Return the panel of tools."""
    found = await groups(room, house.store, words)
    session = room.session
    servers = [group for group in found if group.name is not None]
    return template(
        "_panel.html",
        groups=found,
        servers=len(servers),
        on=sum(group.on for group in servers),
        route=session.route.full_name,
        projection=coming(runtime_of(session)).projection,
        routes=house.routes,
        busy=room.busy,
        words=words,
    )


async def ledger(house: House, watched: Watched, after: int, words: Words) -> AsyncGenerator[bytes]:
    """Yield rows of the ledger as they come; a request's row again when it is answered."""
    base, seen, place = base_of(watched.id), after, watched.place(min(after, watched.count - 1))
    open_requests: list[int] = []
    yield b"retry: 1000\n\n"
    while not house.closing.is_set():
        if watched.seen(place) is None:
            yield RELOAD
            return
        events, index = watched.log.events, watched.index
        end = min(watched.count, seen + 1 + 500)
        if end > seen + 1:
            made = Ledger(events, index, words)
            rows = list(made.rows(seen + 1, end))
            for seq in open_requests:
                rows += made.rows(seq, seq + 1)
            open_requests = [seq for seq in open_requests if _open(watched, seq)]
            open_requests += [
                seq
                for seq in range(seen + 1, end)
                if isinstance(events[seq].data, RequestSent) and _open(watched, seq)
            ]
            shown = shown_rows(rows, base, words)
            html = template("_rows.html", rows=shown)
            seen, place = end - 1, watched.place(end - 1)
            yield message("rows", {"html": html, "total": watched.count}, place)
        count, version = watched.count, watched.version
        if seen >= count - 1:
            if not await _waited(house, watched, count, version, PATIENCE):
                yield RELOAD
                return
            if watched.count == count:
                yield b": still here\n\n"


async def _waited(
    house: House, watched: Watched, beyond: int, version: int, patience: float
) -> bool:
    """Wait until something is new; say whether the session is still there."""
    try:
        await watched.wait(house.store, beyond, version, patience)
    except SessionMissing:
        return False
    return True


def _open(watched: Watched, seq: int) -> bool:
    spent = watched.index.request_at(seq)
    return spent is not None and not spent.request.answered
