"""A session as one HTML file, from the templates of the pages; nothing in it loads anything.

Credentials are replaced in the log before anything is made of it, so they are in no part of the
file, whatever part one looks at.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime

from markupsafe import Markup

from addendum.errors import AddendumError
from addendum.log import codec
from addendum.log.session_log import SessionLog
from addendum.masking import masked_json
from addendum.tell.words import Words
from addendum.viewer.index import Index
from addendum.viewer.inspect import look, requests_of
from addendum.viewer.ledger import Ledger
from addendum.viewer.render import (
    FOLDER,
    look_html,
    shown_rows,
    template,
    timeline_html,
    turn_html,
    usage_html,
)
from addendum.viewer.text import whole

MAX_SHOWN = 50_000
"""Characters of a tool's arguments or result that the file holds."""

MAX_REQUESTS = 200
"""Requests that are taken apart in the file; of a session with more, the last ones."""


def html(log: SessionLog, words: Words, *, redact: bool = True) -> str:
    """Return a session as one HTML page.

    Args:
        log: The session.
        words: The language.
        redact: Whether what looks like a credential is replaced.
    """
    if redact:
        stored = [masked_json(codec.encode_event(event)) for event in log.events]
        log = SessionLog.load(log.session, stored)
    with whole():
        return _html(log, words, redact)


def _html(log: SessionLog, words: Words, redact: bool) -> str:
    index = Index()
    index.read(log.events)
    events = log.events
    chat = [
        turn_html(events, index, turn, words, "", can=False, shown=MAX_SHOWN)
        for turn in range(index.turns + 1)
    ]
    style = (FOLDER / "static" / "style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return template(
        "export.html",
        words=words,
        title=index.title or log.session,
        session=log.session,
        total=len(log),
        time=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        redacted=redact,
        style=Markup(style),
        digest=f"sha256-{digest}",
        chat=Markup("").join(chat),
        rows=shown_rows(Ledger(events, index, words).rows(0, len(log)), "", words),
        requests=_requests(log, index, words),
        tools=timeline_html(events, words),
        usage=usage_html(index, "", words),
    )


def _requests(log: SessionLog, index: Index, words: Words) -> list[tuple[int, Markup]]:
    wanted = index.requests[-MAX_REQUESTS:]
    try:
        found = requests_of(log, index.requests)
        return [
            (
                each.request.number,
                look_html(
                    look(log, index, each.request.number, replayed=found),
                    index,
                    log.session,
                    words,
                    base="",
                ),
            )
            for each in wanted
        ]
    except AddendumError:
        # A log of another release may hold what this one cannot render again.
        return []
