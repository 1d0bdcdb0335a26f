"""From values to HTML: the templates, what they are given, and how an item becomes text."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct, structs

from addendum.cache.causes import CAUSES
from addendum.cache.explain import Explanation
from addendum.log.events import DeveloperMessage, Event
from addendum.log.session_log import SessionLog
from addendum.moments import moment
from addendum.tell.changes import change
from addendum.tell.events import break_reason
from addendum.tell.figures import money, number, octets, size
from addendum.tell.words import LANGUAGES, Words
from addendum.viewer import charts, timeline
from addendum.viewer.chat import SHOWN, Item, excerpt, items
from addendum.viewer.figures import bar
from addendum.viewer.index import Index
from addendum.viewer.inspect import Difference, Look
from addendum.viewer.ledger import Row
from addendum.viewer.text import discreet, exact, line, markdown, visible

FOLDER = Path(__file__).parent
MAX_EVENT = 20_000
"""Characters of an event as stored that a page shows before somebody asks for all."""


MAX_RUN = 200
"""Segments of a folded run that are shown at once."""

MAX_STRIPS = 400
"""Tools that the timeline shows; those that were called are among them."""


class Shown(Struct, frozen=True):
    """Something with its HTML; the version says whether a page has it already."""

    key: str
    version: str
    html: Markup


class ShownRow(Struct, frozen=True):
    """A row of the ledger with its HTML."""

    row: Row
    html: Markup


@functools.cache
def environment() -> Environment:
    """Return the templates. Everything that is put into one is escaped."""
    made: Any = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_discreet,
        trim_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        md=markdown,
        visible=visible,
        exact=exact,
        line=line,
        size=size,
        octets=octets,
        address=base_of,
        num=number,
        when=when,
        iso=_iso,
        reason=break_reason,
        kind=kind,
        money=_money,
        query=_query,
    )
    made.globals["languages"] = LANGUAGES
    made.globals["icon"] = made.get_template("_icons.html").module.icon
    return made


def _discreet(value: Any) -> Any:
    """Return what a template is about to write, without credentials: nothing passes by."""
    return discreet(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def template(name: str, /, **values: Any) -> Markup:
    """Return a template filled in."""
    return Markup(environment().get_template(name).render(values))


def _query(values: Mapping[str, str], request: Any) -> str:
    """Return the query of a request with some of its values changed."""
    kept = dict(request.query_params) if request is not None else {}
    return urlencode({**kept, **values})


def when(milliseconds: int) -> str:
    """Return a time in UTC, as short as it can be understood; a dash if it is none."""
    at = moment(milliseconds / 1000)
    return "—" if at is None else at.strftime("%Y-%m-%d %H:%M")


def _money(amount: Decimal | None) -> str:
    return "—" if amount is None else money(amount)


def _iso(milliseconds: int) -> str:
    at = moment(milliseconds / 1000)
    return "" if at is None else at.isoformat()


def kind(key: str, words: Words) -> str:
    """Return the label of a row; a kind that has no text yet is its own."""
    return words.texts.get(f"kind.{key}", key)


def base_of(session: str) -> str:
    """Return the address of a session's pages."""
    return f"/s/{quote(session, safe='')}"


# -- chat -----------------------------------------------------------------------------------------


@functools.cache
def _macros() -> Any:
    return environment().get_template("_items.html").module


def item_html(item: Item, base: str, words: Words, can: bool) -> Markup:
    """Return an item as HTML."""
    return Markup(getattr(_macros(), item.kind)(item.fields, item, base, words, can))


def shown_items(found: Iterable[Item], base: str, words: Words, can: bool) -> list[Shown]:
    """Return items with their HTML and its version."""
    made: list[Shown] = []
    for item in found:
        html = item_html(item, base, words, can)
        made.append(Shown(item.key, f"{zlib.crc32(html.encode()):x}", html))
    return made


def turn_html(
    events: Sequence[Event],
    index: Index,
    turn: int,
    words: Words,
    base: str,
    *,
    pending: Sequence[Any] = (),
    can: bool = True,
    shown: int = SHOWN,
) -> Markup:
    """Return a turn as HTML; nothing if it has nothing to show."""
    found = shown_items(items(events, index, turn, words, pending, shown), base, words, can)
    return template("_turn.html", turn=turn, shown=found, words=words) if found else Markup("")


# -- trajectory -----------------------------------------------------------------------------------


def shown_rows(rows: Iterable[Row], base: str, words: Words) -> list[ShownRow]:
    """Return rows of the ledger with their HTML."""
    made = environment().get_template("_row.html")
    return [ShownRow(row, Markup(made.render(row=row, base=base, words=words))) for row in rows]


def event_html(log: SessionLog, index: Index, event: Event, raw: str, words: Words) -> Markup:
    """Return an event whole.

    Args:
        log: Its log.
        index: What is known of it.
        event: The event.
        raw: It as it is stored, with a line for each field.
        words: The reader's language.
    """
    data: Any = event.data
    kinds = ("static", "conversation", "text", "reasoning")
    labels = {
        "static": "event.prompt",
        "conversation": "event.prompt",
        "reasoning": "turn.thinking",
    }
    parts = [
        (words(labels.get(kind, "event.text")), text)
        for kind in kinds
        if isinstance(text := getattr(data, kind, None), str)
        and text
        and event.type
        in (
            "system/message",
            "user/message",
            "assistant/message",
            "compaction/summary",
            "assistant/attempt",
        )
    ]
    moved = change(data, words) if isinstance(data, DeveloperMessage) else None
    shown = Markup("") if moved is None else Markup(_macros().change_body(moved))
    return template(
        "_event.html",
        event=event,
        turn=index.turn_of[event.seq],
        parts=parts,
        notice=shown,
        raw=excerpt(raw, MAX_EVENT),
        base=base_of(log.session),
        words=words,
    )


def look_html(
    look: Look, index: Index, session: str, words: Words, *, base: str | None = None
) -> Markup:
    """Return a request, taken apart; with an empty `base` it has no links."""
    numbers = [each.request.number for each in index.requests]
    at = next((at for at, each in enumerate(index.requests) if each is look.spent), 0)
    cause = look.cause
    key = "" if cause is None else cause_key(cause)
    return template(
        "_request.html",
        look=look,
        bar=bar([look.spent]),
        previous=numbers[at - 1] if at else None,
        next=numbers[at + 1] if at + 1 < len(numbers) else None,
        why=words(f"why.{key}") if key else "",
        todo=words(f"do.{key}") if key else "",
        cost="" if cause is None or cause.cost is None else money(cause.cost),
        base=base_of(session) if base is None else base,
        words=words,
    )


def cause_key(cause: Explanation) -> str:
    """Return the key of a cause's words."""
    found = next((key for key, each in CAUSES.items() if each.text == cause.text), "provider")
    return found.replace(" ", "_")


def run_html(look: Look, at: int, count: int, session: str, words: Words) -> Markup:
    """Return segments that were told in one line; of very many the rest is a line again."""
    found = [row for row in look.rows if at <= row.at < at + count]
    shown, rest = found[:MAX_RUN], found[MAX_RUN:]
    if rest:
        size, tokens = sum(each.size for each in rest), sum(each.tokens for each in rest)
        shown.append(structs.replace(rest[0], size=size, tokens=tokens, run=len(rest)))
    parts = [
        template("_segment.html", row=row, look=look, base=base_of(session), words=words)
        for row in shown
    ]
    return Markup("").join(parts)


def difference_html(found: Difference, session: str, words: Words) -> Markup:
    """Return two requests beside each other."""
    return template("_diff.html", d=found, base=base_of(session), words=words)


# -- timeline and usage ---------------------------------------------------------------------------

_WIDE = 1200


class _Strip(Struct, frozen=True):
    name: str
    told: str
    rects: tuple[tuple[str, float, float], ...]
    calls: tuple[float, ...]
    total: int


def timeline_html(events: Sequence[Event], words: Words) -> Markup:
    """Return the tools of a session over its turns."""
    found = timeline.timeline(events)
    turns = max(1, found.turns)
    unit = _WIDE / turns
    step = max(1, -(-turns // 20))
    dot = round(max(2.0, min(unit * 0.35, 12.0)), 2)
    strips: list[_Strip] = []
    called = sum(1 for strip in found.strips if strip.total)
    room = max(0, MAX_STRIPS - called)
    for strip in found.strips:
        if not strip.total:
            room -= 1
            if room < 0:
                continue
        elif len(strips) == MAX_STRIPS:
            continue
        rects = tuple(
            (s.state, round((s.first - 1) * unit, 2), round((s.last - s.first + 1) * unit - 1, 2))
            for s in strip.stretches
        )
        told = "; ".join(
            words(
                "timeline.one" if s.first == s.last else "timeline.many",
                state=words(f"timeline.{s.state}"),
                first=s.first,
                last=s.last,
            )
            for s in strip.stretches[:12]
        )
        if strip.total:
            told = f"{told}; {words('timeline.calls', count=strip.total)}"
        places = sorted({round((turn - 0.5) * unit - dot / 2, 1) for turn in strip.calls})
        most = timeline.COLUMNS
        places = places[:: -(-len(places) // most)] if len(places) > most else places
        strips.append(
            _Strip(strip.name, f"{strip.name}: {told}", rects, tuple(places), strip.total)
        )
    more = len(found.strips) - len(strips)
    shown = {"turns": found.turns, "strips": strips, "more": more}
    ticks = [round(at * unit, 2) for at in range(0, turns, step)]
    return template("_timeline.html", t=shown, wide=_WIDE, ticks=ticks, dot=dot, words=words)


def usage_html(index: Index, base: str, words: Words) -> Markup:
    """Return the charts of a session."""
    return template(
        "_usage.html",
        chart=charts.chart(index.requests),
        sum=bar(index.requests),
        short=[each for each in index.requests if each.short][-50:],
        wide=charts.WIDE,
        high=charts.HIGH,
        base=base,
        words=words,
    )
