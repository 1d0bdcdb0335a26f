"""`addendum show`: a session's log, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import click
from msgspec import Raw

from addendum.agent.replay import known_route
from addendum.cache.spent import Spent, spent, totals
from addendum.cli.costs import dead_weights, request_fields, total_fields, total_lines
from addendum.cli.stored import altered, altered_lines, followed, read_log
from addendum.cli.terminal import (
    json_option,
    line,
    print_json,
    run_async,
    store_option,
    style,
    width,
    wrapped,
)
from addendum.log import codec
from addendum.log.events import Event, RequestHeader, Unknown
from addendum.log.exchanges import FOLLOWED, Exchange, Exchanges, exchanges
from addendum.log.session_log import SessionLog
from addendum.log.values import Usage
from addendum.tell.events import describe
from addendum.tell.figures import money, number
from addendum.tell.words import words

_WHOLE = ("request", "route", "cost")
"""What is never cut: names of routes, and figures."""

_FIGURES = 600
"""Characters of it, at most."""


@click.command()
@click.argument("session", metavar="ID")
@click.option("--follow", is_flag=True, help="Go on with what another process adds, until Ctrl-C.")
@store_option
@json_option
def show(session: str, follow: bool, store: str | None, as_json: bool) -> None:
    """Show a session's log: its turns, its requests with figures, its changes of tools.

    ID is the session's id, or as much of its beginning as no other has. With --follow and --json
    each event is one line.
    """
    if follow:
        run_async(_follow, store, session, as_json)
        return
    row, log = run_async(read_log, store, session)
    counted = spent(log.events, known_route)
    own = totals(each for each in counted if not each.inherited)
    dead = dead_weights(log)
    if as_json:
        events = [Raw(codec.encode_event(event)) for event in log.events]
        print_json(
            {
                "session": log.session,
                "parent": row.parent,
                "turns": log.turns,
                "altered": altered(log),
                "requests": list(requests(log, counted, dead)),
                "totals": total_fields(own),
                "events": events,
            }
        )
        return
    wide = width()
    click.echo(style(line(f"session {log.session}: {log.turns} turns", wide), bold=True))
    for text in altered_lines(log):
        click.echo(text)
    teller = Teller(Figures(counted, dead))
    for event in log.events:
        for told in teller.take(event):
            _print(told, wide)
    for text in total_lines(own):
        click.echo(line(text, wide))


async def _follow(store: str | None, session: str, as_json: bool) -> None:
    teller, wide, seen = Teller(), width(), 0
    async with aclosing(followed(store, session)) as logs:
        async for log in logs:
            if not seen and not as_json:
                click.echo(style(line(f"session {log.session}", wide), bold=True))
            for event in log.events[seen:]:
                if as_json:
                    click.echo(codec.encode_event(event).decode())
                else:
                    for told in teller.take(event):
                        _print(told, wide)
            seen = len(log.events)
            sys.stdout.flush()


def _print(told: tuple[int, str, str], wide: int) -> None:
    seq, what, text = told
    if what == "turn":
        click.echo(style(line(f"turn {text}", wide), bold=True))
        return
    begins = f"{seq:>6}  {what:8}  "
    whole = line(text, _FIGURES) if what in _WHOLE else line(text, wide - len(begins))
    said = begins + whole
    click.echo(said if len(said) <= wide else wrapped(said, len(begins)))


def requests(
    log: SessionLog, counted: Sequence[Spent], dead: Mapping[int, int | None]
) -> Iterator[dict[str, Any]]:
    """Yield each request of a log as fields of JSON; null where the provider did not say.

    Args:
        log: The log.
        counted: What its requests cost.
        dead: Their dead weight, by event.
    """
    for each, own in zip(counted, exchanges(log.events), strict=True):
        breaks = [{"reason": b.reason, "at": b.at, "detail": b.detail} for b in own.breaks]
        yield request_fields(each, dead.get(each.seq)) | {"breaks": breaks}


class Figures:
    """What is known of requests beside their answers.

    Args:
        counted: What they cost.
        dead: Their dead weight, by event.
    """

    def __init__(self, counted: Sequence[Spent], dead: Mapping[int, int | None]) -> None:
        self._counted = {each.seq: each for each in counted}
        self._dead = dead

    def told(self, seq: int) -> str:
        """Return what a request cost, in words; nothing where nothing is known of it."""
        found, dead = self._counted.get(seq), self._dead.get(seq)
        parts: list[str] = []
        if found is not None and found.cost is not None:
            parts.append(f"{money(found.cost.amount)}, saved {money(found.cost.saved)}")
        if found is not None and found.rebinding_cost:
            parts.append(f"rebinding about {money(found.rebinding_cost)} more")
        if dead:
            parts.append(f"dead weight about {number(dead)}")
        return ", ".join(parts)


class Teller:
    """Tells a log event by event: seq, a word for what it is, and text.

    Args:
        figures: What requests cost, where that is known already.
    """

    def __init__(self, figures: Figures | None = None) -> None:
        self._figures = figures
        self._exchanges = Exchanges()
        self._header: RequestHeader | None = None

    def take(self, event: Event) -> Iterator[tuple[int, str, str]]:
        """Return what the next event says, a line each."""
        data, seq = event.data, event.seq
        own = self._exchanges.take(event) if type(data) in FOLLOWED else None
        # A request is told of when it has ended.
        if own is not None and own.end is not None and own.counted:
            yield from self._request(seq, own)
        if isinstance(data, Unknown) or data.facts.echo:
            return
        for part in describe(event, words("en"), self._header).lines():
            yield seq, part.title, part.text
        if isinstance(data, RequestHeader):
            self._header = data

    def _request(self, seq: int, own: Exchange) -> Iterator[tuple[int, str, str]]:
        yield seq, "request", _figures(own.sent.number, own.sent.route, own.usage)
        if self._figures is not None and (text := self._figures.told(own.event.seq)):
            yield seq, "cost", text


def _figures(request: int, route: str, usage: Usage) -> str:
    parts = [
        f"prompt {number(usage.prompt)}",
        f"read {number(usage.cache_read)}",
        f"written {number(usage.cache_write)}",
        f"out {number(usage.output)}",
    ]
    return f"{request}: {', '.join(parts)}  {route}"
