"""One request of a browser: its language, the session that it names, the list beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import anyio.to_thread
from markupsafe import Markup
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from addendum.agent.replay import known_route
from addendum.cache.spent import Totals, totals_of
from addendum.errors import AddendumError
from addendum.log import codec
from addendum.log.events import UserMessage
from addendum.log.store import SessionRow
from addendum.masking import masked
from addendum.tell.words import LANGUAGES, Words, chosen
from addendum.viewer.render import base_of, template
from addendum.viewer.rooms import House
from addendum.viewer.watch import Watched

LISTED = 80
"""Conversations that the list shows."""

COUNTED = 24
"""Conversations that the start tells the cost of."""

MAX_COUNTED = 30_000
"""Events that one view of the start reads for that; the next view goes on."""

LANGUAGE_COOKIE = "addendum_language"

_TITLE_EVENTS = 60


class Page:
    """One request of a browser, with what its answer is made of.

    Attributes:
        request: The request.
        house: The house.
        words: The reader's language.
        token: What a change has to bring.
    """

    def __init__(self, request: Request, house: House, token: str) -> None:
        self.request = request
        self.house = house
        self.token = token
        self.words: Words = chosen(
            request.query_params.get("lang"),
            request.cookies.get(LANGUAGE_COOKIE),
            request.headers.get("accept-language", ""),
        )

    async def watched(self) -> Watched:
        """Return the session that the address names."""
        return await self.house.watch.open(self.request.path_params["session"])

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a number from the query; nonsense counts as if it were not there."""
        given = self.request.query_params.get(name, "")
        return int(given) if given.isdecimal() and len(given) < 12 else default

    def path_number(self, name: str) -> int:
        """Return a number from the address.

        Raises:
            HTTPException: It is none, or has too many digits.
        """
        digits = self.request.path_params[name]
        if not (digits.isdecimal() and len(digits) < 12):
            raise HTTPException(404)
        return int(digits)

    async def full(self, name: str, /, *, current: str | None = None, **values: Any) -> Response:
        """Return a whole page."""
        sessions = await listed(self.house, "")
        html = template(
            name,
            words=self.words,
            # As it is: a page needs it, and chance may give it the form of a key.
            token=Markup(self.token),
            request=self.request,
            sessions=sessions,
            current=current,
            query=values.pop("query", None),
            **values,
        )
        response = HTMLResponse(html)
        if self.request.query_params.get("lang") in LANGUAGES:
            response.set_cookie(
                LANGUAGE_COOKIE, self.words.language, max_age=31_536_000, samesite="lax"
            )
        return response


# -- conversations --------------------------------------------------------------------------------


async def listed(house: House, query: str) -> list[dict[str, Any]]:
    """Return the conversations whose title or id holds a text, the newest first."""
    wanted = query.strip().casefold()
    found: list[dict[str, Any]] = []
    for row in await house.store.sessions():
        if len(found) == LISTED:
            break
        title = await _title(house, row)
        if wanted and wanted not in title.casefold() and wanted not in row.id.casefold():
            continue
        found.append(
            {
                "id": row.id,
                "url": base_of(row.id),
                "title": title,
                "created": row.created,
                "updated": row.updated,
                "events": row.events,
                "parent": row.parent,
            }
        )
    return found


class Counted(Struct, frozen=True):
    """A conversation with what it cost.

    Attributes:
        listed: What the list says of it.
        requests: Requests that were sent; None where that was not counted.
        prompt: Tokens of their prompts; None if they are not known.
        share: What was read of them from the cache, in whole per cent, rounded down.
        cost: US dollars; None if they are not known.
        saved: US dollars that the cache saved.
        rebinding: US dollars that a new tool list at each change would have cost more, estimated.
    """

    listed: dict[str, Any]
    requests: int | None = None
    prompt: int | None = None
    share: int | None = None
    cost: Decimal | None = None
    saved: Decimal | None = None
    rebinding: Decimal | None = None


async def counted(house: House, sessions: Sequence[dict[str, Any]]) -> list[Counted]:
    """Return conversations with what they cost; a very long one is not counted."""
    counts: list[Counted] = []
    left = MAX_COUNTED
    for each in sessions[:COUNTED]:
        session, events = each["id"], each["events"]
        state = each["created"], events
        known = house.sums.get(session)
        if (known is None or known[0] != state) and events <= left:
            left -= events
            sums = None
            with contextlib.suppress(AddendumError):
                stored = await house.store.read(session)
                sums = await anyio.to_thread.run_sync(totals_of, stored, known_route)
            known = house.sums[session] = state, sums
        counts.append(_counted(each, None if known is None else known[1]))
    return counts


def _counted(listed: dict[str, Any], sums: Totals | None) -> Counted:
    if sums is None:
        return Counted(listed)
    share = None
    if sums.prompt and sums.cache_read is not None:
        share = sums.cache_read * 100 // sums.prompt
    return Counted(
        listed,
        sums.requests,
        sums.prompt,
        share,
        None if sums.cost is None else sums.cost.amount,
        None if sums.cost is None else sums.cost.saved,
        sums.rebinding,
    )


async def _title(house: House, row: SessionRow) -> str:
    """Return the first message of a session; it never changes once it is there."""
    known = house.titles.get((row.id, row.created))
    if known:
        return known
    try:
        first = [
            codec.decode_event(raw).data
            for raw in await house.store.read(row.id, limit=_TITLE_EVENTS)
        ]
    except AddendumError:
        return ""
    title = next((masked(data.text)[:200] for data in first if isinstance(data, UserMessage)), "")
    if title:
        house.titles[row.id, row.created] = title
    return title
