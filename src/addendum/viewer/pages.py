"""The pages: one handler an address, each from what a session's log says."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse

from addendum import encoding
from addendum.agent.replay import Replayed
from addendum.errors import AddendumError, ConfigurationError
from addendum.log import codec
from addendum.log.events import AssistantMessage, ToolResult, UserMessage
from addendum.masking import masked
from addendum.tell.words import Words
from addendum.viewer import export, feed, inspect
from addendum.viewer.chat import arguments, shown_image, turns_shown
from addendum.viewer.ledger import Ledger
from addendum.viewer.page import Page, counted, listed
from addendum.viewer.render import (
    base_of,
    difference_html,
    event_html,
    look_html,
    run_html,
    shown_rows,
    template,
    timeline_html,
    turn_html,
    usage_html,
)
from addendum.viewer.rooms import House
from addendum.viewer.text import discreet, plain
from addendum.viewer.watch import Watched
from addendum.wire.segment import parse, resolve

TURNS = 12
"""Turns that a page of Chat has."""

MAX_STREAMS = 256
"""Event streams that may be open at once."""

KEPT_LOOKS = 4
"""Requests of a session that stay taken apart."""

MAX_WHOLE = 4_000_000
"""Characters of one text that are sent when somebody asks for all of it."""


async def home(page: Page) -> Response:
    """The start: a first message, and the conversations."""
    house = page.house
    recent = await counted(house, await listed(house, ""))
    return await page.full(
        "home.html",
        route=house.setup.route,
        routes=house.routes,
        lab=house.setup.lab,
        recent=recent,
    )


async def sessions(page: Page) -> Response:
    """The list of conversations, filtered."""
    query = page.request.query_params.get("q", "")[:200]
    current = page.request.query_params.get("current")
    found = await listed(page.house, query)
    return HTMLResponse(
        template("_list.html", sessions=found, current=current, query=query, words=page.words)
    )


# -- chat -----------------------------------------------------------------------------------------


def _turns(page: Page, watched: Watched, before: int | None) -> tuple[Markup, int | None]:
    index = watched.index
    shown = turns_shown(index, before, TURNS)
    pending = watched.room.session.pending() if watched.room is not None else ()
    parts = [
        turn_html(
            watched.log.events,
            index,
            turn,
            page.words,
            base_of(watched.id),
            pending=pending if turn == index.turns else (),
        )
        for turn in shown
    ]
    return Markup("").join(parts), shown.start if shown.start > 0 else None


async def chat(page: Page) -> Response:
    """A conversation."""
    watched = await page.watched()
    turns, earlier = _turns(page, watched, None)
    return await page.full(
        "chat.html",
        current=watched.id,
        base=base_of(watched.id),
        title=watched.index.title or watched.id,
        turns=turns,
        earlier=earlier,
        after=watched.place(watched.count - 1),
    )


async def earlier_turns(page: Page) -> Response:
    """Turns in front of those that a page has."""
    watched = await page.watched()
    turns, earlier = _turns(page, watched, page.number("before"))
    return HTMLResponse(turns, headers={"x-earlier": "" if earlier is None else str(earlier)})


async def stream(page: Page) -> Response:
    """The event stream of a page."""
    house = page.house
    if house.streams >= MAX_STREAMS:
        return PlainTextResponse("too many pages are open\n", 503, {"retry-after": "10"})
    watched = await page.watched()
    query, headers = page.request.query_params, page.request.headers
    after = watched.seen(headers.get("last-event-id") or query.get("after", ""))
    if after is None:
        return Response(feed.RELOAD, media_type="text/event-stream")
    kind = feed.chat if query.get("view") == "chat" else feed.ledger
    events = kind(house, watched, after, page.words)
    return StreamingResponse(
        _counted(house, watched, events),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _counted(
    house: House, watched: Watched, events: AsyncGenerator[bytes]
) -> AsyncGenerator[bytes]:
    house.streams += 1
    watched.viewers += 1
    try:
        async for each in events:
            yield each
    finally:
        watched.viewers -= 1
        house.streams -= 1
        await events.aclose()


# -- trajectory -----------------------------------------------------------------------------------


async def trajectory(page: Page) -> Response:
    """The ledger of a session, and what is chosen in it."""
    watched = await page.watched()
    events, index = watched.log.events, watched.index
    made = Ledger(events, index, page.words)
    base = base_of(watched.id)
    query = page.request.query_params.get("q", "")[:200].strip() or None
    found = await anyio.to_thread.run_sync(made.search, query) if query else []
    shown = made.page(
        before=page.number("before"), after=page.number("after"), at=page.number("at")
    )
    inspected: Markup | None = None
    number, at = page.number("request"), page.number("at")
    if number is not None:
        inspected = await _look(watched, number, page.words)
    elif at is not None and at < watched.count:
        inspected = _event(watched, at, page.words)
    return await page.full(
        "trajectory.html",
        after=watched.place(shown.end - 1),
        current=watched.id,
        base=base,
        title=index.title or watched.id,
        page=shown,
        rows=shown_rows(shown.rows, base, page.words),
        query=query,
        found=shown_rows(found, base, page.words),
        inspected=inspected,
    )


async def rows(page: Page) -> Response:
    """More rows of the ledger."""
    watched = await page.watched()
    made = Ledger(watched.log.events, watched.index, page.words)
    shown = made.page(
        before=page.number("before"), after=page.number("after"), at=page.number("at")
    )
    html = template("_rows.html", rows=shown_rows(shown.rows, base_of(watched.id), page.words))
    more = {"x-first": str(shown.first), "x-end": str(shown.end), "x-total": str(shown.total)}
    return HTMLResponse(html, headers=more)


def _event(watched: Watched, seq: int, words: Words) -> Markup:
    event = watched.log.events[seq]
    raw = arguments(codec.encode_event(event).decode())
    return event_html(watched.log, watched.index, event, raw, words)


async def event(page: Page) -> Response:
    """One event, whole."""
    watched = await page.watched()
    seq = _seq(page, watched)
    return await _part(page, watched, _event(watched, seq, page.words), "trajectory")


async def event_text(page: Page) -> Response:
    """One text of an event: its result, its arguments, or itself as it is stored."""
    watched = await page.watched()
    event = watched.log.events[_seq(page, watched)]
    data: Any = event.data
    part = page.request.path_params["part"]
    if part == "raw":
        text = arguments(codec.encode_event(event).decode())
    elif part == "text" and isinstance(data, ToolResult | UserMessage | AssistantMessage):
        text = data.text
    elif part.startswith("call/") and isinstance(data, AssistantMessage):
        position = part.removeprefix("call/")
        if not position.isdecimal() or len(position) > 6 or int(position) >= len(data.calls):
            raise HTTPException(404)
        text = arguments(data.calls[int(position)].arguments)
    else:
        raise HTTPException(404)
    return HTMLResponse(plain(discreet(text)[:MAX_WHOLE]))


async def event_media(page: Page) -> Response:
    """A file of a tool's result: an image, or something to be kept."""
    watched = await page.watched()
    data = watched.log.events[_seq(page, watched)].data
    file = page.path_number("place")
    if not isinstance(data, ToolResult) or file >= len(data.media):
        raise HTTPException(404)
    medium = data.media[file]
    try:
        content = base64.b64decode(medium.data, validate=True)
    except ValueError:
        raise HTTPException(404) from None
    shown = shown_image(medium)
    return Response(
        content if shown else _text_of(content),
        media_type=medium.media_type if shown else "application/octet-stream",
        headers={
            "content-disposition": "inline" if shown else "attachment",
            # Opened by itself it is a page of ours: it may do nothing at all.
            "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
        },
    )


def _text_of(content: bytes) -> bytes:
    """Return a file without credentials if it is a text; any other is itself."""
    try:
        return masked(content.decode()).encode()
    except UnicodeDecodeError:
        return content


def _seq(page: Page, watched: Watched) -> int:
    seq = page.path_number("seq")
    if seq >= watched.count:
        raise HTTPException(404)
    return seq


# -- requests -------------------------------------------------------------------------------------


async def _taken_apart(watched: Watched, number: int, *, folded: bool) -> inspect.Look:
    """Take a request apart, or return it as it was a moment ago."""
    log, index, looks = watched.log, watched.index, watched.looks
    key = number, inspect.numbered(log, index, number).request.answered, folded
    if key not in looks:
        made = partial(inspect.look, log, index, number, folded=folded)
        looks[key] = await anyio.to_thread.run_sync(made)
        for old in list(looks)[:-KEPT_LOOKS]:
            del looks[old]
    return looks[key]


async def _look(watched: Watched, number: int, words: Words) -> Markup:
    """Return a request taken apart; what cannot be rendered again says so."""
    try:
        taken_apart = await _taken_apart(watched, number, folded=True)
    except ConfigurationError:
        raise
    except AddendumError as error:
        heading = Markup("<h2>{}</h2>").format(words("request.gone"))
        return heading + Markup("<p>{}</p>").format(plain(str(error)))
    return look_html(taken_apart, watched.index, watched.id, words)


async def request_page(page: Page) -> Response:
    """One request, taken apart."""
    watched = await page.watched()
    content = await _look(watched, page.path_number("number"), page.words)
    return await _part(page, watched, content, "trajectory")


async def request_body(page: Page) -> Response:
    """The bytes of a request, all but those of credentials."""
    watched = await page.watched()
    record = (await _replayed(page, watched)).record
    name = f"request-{record.n}.json"
    return Response(
        record.body,
        media_type="application/json",
        headers={"content-disposition": f"attachment; filename={name}"},
    )


async def _replayed(page: Page, watched: Watched) -> Replayed:
    own = inspect.numbered(watched.log, watched.index, page.path_number("number"))
    found = await anyio.to_thread.run_sync(inspect.requests_of, watched.log, [own])
    return found[own.request.seq]


async def request_segment(page: Page) -> Response:
    """One segment of a request, whole."""
    watched = await page.watched()
    record = (await _replayed(page, watched)).record
    value = resolve(parse(record.body), page.request.query_params.get("path", "")[:500])
    return HTMLResponse(plain(encoding.encode(value).decode()[:MAX_WHOLE]))


async def request_run(page: Page) -> Response:
    """Segments of a request that were told in one line."""
    watched = await page.watched()
    number = page.path_number("number")
    taken_apart = await _taken_apart(watched, number, folded=False)
    at, count = page.path_number("at"), page.path_number("count")
    return HTMLResponse(run_html(taken_apart, at, count, watched.id, page.words))


async def diff(page: Page) -> Response:
    """Two requests beside each other."""
    watched = await page.watched()
    a, b = page.path_number("a"), page.path_number("b")
    found = await anyio.to_thread.run_sync(inspect.difference, watched.log, watched.index, a, b)
    content = difference_html(found, watched.id, page.words)
    return await _part(page, watched, content, "trajectory")


async def tools(page: Page) -> Response:
    """Tools over turns."""
    watched = await page.watched()
    return await _part(page, watched, timeline_html(watched.log.events, page.words), "tools")


async def usage(page: Page) -> Response:
    """Charts of a session."""
    watched = await page.watched()
    content = usage_html(watched.index, base_of(watched.id), page.words)
    return await _part(page, watched, content, "usage")


async def export_page(page: Page) -> Response:
    """The session as one file, without what looks like a credential."""
    watched = await page.watched()
    # What comes while it is written is no part of it.
    log = watched.log.until(watched.count)
    made = await anyio.to_thread.run_sync(export.html, log, page.words)
    name = quote(f"{watched.id}.html", safe="")
    disposition = f"attachment; filename*=utf-8''{name}"
    return HTMLResponse(made, headers={"content-disposition": disposition})


async def _part(page: Page, watched: Watched, content: Markup, tab: str) -> Response:
    """Return content alone to a script that asks for it, else as a page of its own."""
    if page.request.headers.get("x-part") == "1":
        return HTMLResponse(content)
    return await page.full(
        "plain.html",
        current=watched.id,
        base=base_of(watched.id),
        title=watched.index.title or watched.id,
        heading=page.words(f"app.{tab}"),
        tab=tab,
        content=content,
    )
