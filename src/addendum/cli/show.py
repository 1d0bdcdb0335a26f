"""`addendum show`: a session's log, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import aclosing

import click
from msgspec import Raw

from addendum.agent.replay import known_route
from addendum.cache.spent import Bill, Spent, billed, totals
from addendum.cli.costs import dead_weights, request_fields, total_fields, total_lines
from addendum.cli.flags import NAME
from addendum.cli.stored import altered, altered_lines, followed, read_log
from addendum.cli.terminal import (
    echo,
    json_option,
    print_json,
    run_async,
    store_option,
    style,
    width,
    wrapped,
)
from addendum.lines import one_line
from addendum.log import codec
from addendum.log.events import Event, RequestHeader, Unknown
from addendum.log.values import Usage
from addendum.tell.events import describe
from addendum.tell.figures import money, number
from addendum.tell.words import words

_WHOLE = ("request", "route", "cost")
"""What is never cut: names of routes, and figures."""

_FIGURES = 600
"""Characters of it, at most."""


@click.command()
@click.argument("session", type=NAME, metavar="ID")
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
    bill = billed(log.events, known_route)
    own = totals(bill.own)
    dead = dead_weights(log)
    if as_json:
        events = [Raw(codec.encode_event(event)) for event in log.events]
        print_json(
            {
                "session": log.session,
                "parent": row.parent,
                "turns": log.turns,
                "altered": altered(log),
                "changed": sorted(log.changed),
                "requests": [
                    request_fields(each, dead.get(each.request.seq)) for each in bill.requests
                ],
                "totals": total_fields(own),
                "events": events,
            }
        )
        return
    wide = width()
    echo(style(one_line(f"session {log.session}: {log.turns} turns", wide), bold=True))
    for text in altered_lines(log):
        echo(text)
    teller = Teller(dead)
    for event in log.events:
        for told in teller.take(event):
            _print(told, wide)
    for text in total_lines(own):
        echo(one_line(text, wide))


async def _follow(store: str | None, session: str, as_json: bool) -> None:
    teller, wide, seen = Teller(), width(), 0
    async with aclosing(followed(store, session)) as logs:
        async for log in logs:
            if not seen and not as_json:
                echo(style(one_line(f"session {log.session}", wide), bold=True))
            for event in log.events[seen:]:
                if as_json:
                    echo(codec.encode_event(event).decode())
                else:
                    for told in teller.take(event):
                        _print(told, wide)
            seen = len(log.events)
            sys.stdout.flush()


def _print(told: tuple[int, str, str], wide: int) -> None:
    seq, what, text = told
    if what == "turn":
        echo(style(one_line(f"turn {text}", wide), bold=True))
        return
    begins = f"{seq:>6}  {what:8}  "
    whole = one_line(text, _FIGURES) if what in _WHOLE else one_line(text, wide - len(begins))
    said = begins + whole
    echo(said if len(said) <= wide else wrapped(said, len(begins)))


class Teller:
    """Tells a log event by event: seq, a word for what it is, and text.

    Args:
        dead: Dead weight of requests, by event, where that is known.
    """

    def __init__(self, dead: Mapping[int, int | None] | None = None) -> None:
        self._dead = dead or {}
        self._bill = Bill(known_route)
        self._header: RequestHeader | None = None

    def take(self, event: Event) -> Iterator[tuple[int, str, str]]:
        """Return what the next event says, a line each."""
        data, seq = event.data, event.seq
        spent = self._bill.take(event)
        # A request is told of when it has ended.
        if spent is not None and spent.request.end is not None and spent.request.counted:
            request = spent.request
            yield seq, "request", _figures(request.number, request.route, request.usage)
            if text := self._cost(spent):
                yield seq, "cost", text
        if isinstance(data, Unknown) or data.facts.echo:
            return
        for part in describe(event, words("en"), self._header).lines():
            yield seq, part.title, part.text
        if isinstance(data, RequestHeader):
            self._header = data

    def _cost(self, spent: Spent) -> str:
        """Return what a request cost, in words; nothing where nothing is known of it."""
        parts: list[str] = []
        if spent.cost is not None:
            parts.append(f"{money(spent.cost.amount)}, saved {money(spent.cost.saved)}")
        if spent.rebinding_cost:
            parts.append(f"rebinding about {money(spent.rebinding_cost)} more")
        if dead := self._dead.get(spent.request.seq):
            parts.append(f"dead weight about {number(dead)}")
        return ", ".join(parts)


def _figures(request: int, route: str, usage: Usage) -> str:
    parts = [
        f"prompt {number(usage.prompt)}",
        f"read {number(usage.cache_read)}",
        f"written {number(usage.cache_write)}",
        f"out {number(usage.output)}",
    ]
    return f"{request}: {', '.join(parts)}  {route}"
