"""`addendum why`: why requests of a session read less from the cache than they could have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, structs

from addendum.agent.replay import known_route, replay
from addendum.cache.explain import Explanation, explained
from addendum.cache.figures import Judge, Row, totals
from addendum.cache.record import readings
from addendum.cli.flags import BASE_URL, NAME
from addendum.cli.stored import altered, altered_lines, read_log
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
from addendum.errors import ConfigurationError
from addendum.lab.records import rules_of
from addendum.lines import one_line
from addendum.log.session_log import SessionLog
from addendum.tell.figures import money, number

if TYPE_CHECKING:
    from addendum.cli.why_ask import Told


class Judged(Struct, frozen=True):
    """A stored session, judged.

    Attributes:
        requests: Number and route of each request.
        rows: Figures of those that were answered, by number.
        misses: Those that read less than expected, explained.
        blind: Routes whose cache nothing is known of.
    """

    requests: tuple[tuple[int, str], ...]
    rows: tuple[Row, ...]
    misses: tuple[Explanation, ...]
    blind: tuple[str, ...]


def judge_log(log: SessionLog) -> Judged:
    """Render a session's requests again and judge them, each route by its own rules.

    One request is looked at after the other, and only what a later one can read from is kept.

    Raises:
        AddendumError: A request cannot be rendered again.
    """
    requests: list[tuple[int, str]] = []
    rows: list[Row] = []
    misses: list[Explanation] = []
    judges: dict[str, Judge] = {}
    blind: list[str] = []
    for each in replay(log):
        record = each.record
        requests.append((record.n, record.route))
        route = known_route(record.route)
        rules = rules_of(route.cache)
        if record.route not in judges:
            judges[record.route] = Judge(rules)
            if rules.kind == "none":
                blind.append(record.route)
        (reading,) = readings([record], deferred_outside=rules.deferred_outside)
        judged = judges[record.route].see(reading)
        if judged is None:
            continue
        row, base = judged
        rows.append(row)
        if row.miss is not None and base is not None:
            misses.append(explained(row, base, reading, route))
    return Judged(tuple(requests), tuple(rows), tuple(misses), tuple(blind))


@click.command()
@click.argument("session", type=NAME, metavar="ID")
@click.option("--request", type=click.IntRange(1), metavar="N", help="This request alone.")
@click.option("--ask", is_flag=True, help="Ask the endpoint as well; sends both requests again.")
@click.option("--base-url", type=BASE_URL, metavar="URL", help="With --ask: another address.")
@store_option
@json_option
def why(
    session: str,
    request: int | None,
    ask: bool,
    base_url: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Say why requests of a session read less from the cache than they could have.

    A reason that was logged before a request was sent makes a miss declared. Exit code 1 if one
    is neither declared nor the provider's, 2 if nothing can be judged.

    With --ask an endpoint that offers diagnostics of its own (Claude, OpenAI's Responses) is asked
    about each miss, and its word printed beside ours. That costs what the two prompts cost.
    """
    if base_url is not None and not ask:
        raise click.UsageError(f"--base-url {base_url} goes with --ask only")
    _, log = run_async(read_log, store, session)
    judged = judge_log(log)
    chosen = _chosen(log, judged, request)
    misses = [each for each in judged.misses if request in (None, each.n)]
    undeclared = sum(each.verdict == "undeclared" for each in misses)
    words: tuple[Told, ...] = ()
    if ask:
        from addendum.cli.why_ask import ask as ask_endpoint

        words = run_async(ask_endpoint, misses, tuple(replay(log)), base_url)
    if as_json:
        print_json(
            {
                "session": log.session,
                "holds": not undeclared,
                "altered": altered(log),
                "requests": [structs.asdict(row) for row in chosen],
                "totals": structs.asdict(totals(chosen)),
                "misses": [_json(each) for each in misses],
                **({"asked": [structs.asdict(each) for each in words]} if ask else {}),
            }
        )
    else:
        echo("\n".join(_shown(log, judged, chosen, misses, request)))
        if ask:
            echo("\n".join(_agreement(words, len(misses))))
    if undeclared:
        raise click.exceptions.Exit(1)


def _chosen(log: SessionLog, judged: Judged, request: int | None) -> list[Row]:
    """Return the rows that are asked for.

    Raises:
        ConfigurationError: There are none, or none of them can be judged.
    """
    numbers = [n for n, _ in judged.requests]
    if not numbers:
        raise ConfigurationError(f"session {log.session} has sent no request yet; nothing to tell")
    if request is not None and request not in numbers:
        raise ConfigurationError(
            f"session {log.session} has requests {numbers[0]} to {numbers[-1]}, not {request}"
        )
    rows = [row for row in judged.rows if request in (None, row.n)]
    if not rows:
        which = "no request" if request is None else f"request {request}"
        says = "was answered" if request is None else "got no answer"
        raise ConfigurationError(f"{which} {says}, so there are no figures; `addendum show` it")
    routes = dict(judged.requests)
    known = [
        row
        for row in rows
        if None not in (row.cache_read, row.expected) and routes[row.n] not in judged.blind
    ]
    if not known:
        names = ", ".join(dict.fromkeys(routes[row.n] for row in rows))
        raise ConfigurationError(
            f"{names}: the provider reports no cached tokens, or nothing is known of its cache; "
            "compare two requests with `addendum diff`"
        )
    return rows


def _json(miss: Explanation) -> dict[str, Any]:
    return {
        **structs.asdict(miss),
        "first": None if miss.first is None else structs.asdict(miss.first),
        "settings": [structs.asdict(each) for each in miss.settings],
        "cost": None if miss.cost is None else float(miss.cost),
    }


def _shown(
    log: SessionLog,
    judged: Judged,
    rows: Sequence[Row],
    misses: Sequence[Explanation],
    request: int | None,
) -> list[str]:
    sums = totals(rows)
    lines: list[str] = []
    if request is None:
        undeclared = sum(each.verdict == "undeclared" for each in misses)
        head = (
            f"session {log.session}: {sums.requests} requests, {len(misses)} read less than "
            f"expected, {undeclared} undeclared"
        )
        lines.append(style(one_line(head, width()), bold=True))
    else:
        if not misses:
            row = rows[0]
            lines.append(
                f"request {row.n} read {number(row.cache_read)} of {number(row.prompt_tokens)} "
                f"tokens; {number(row.expected)} were expected"
            )
    lines += altered_lines(log)
    if sums.unknown:
        lines.append(f"unknown: {sums.unknown} requests, whose provider did not say what was read")
    lines += [f"not judged: nothing is known of the cache of {name}" for name in judged.blind]
    for miss in misses:
        lines += [*([""] if lines else []), *_told(miss)]
    return lines


def _agreement(words: Sequence[Told], misses: int) -> Iterator[str]:
    """Yield what endpoints said of misses, and how often they say what we say."""
    for word in words:
        sign = "agrees" if word.agrees else "DIFFERS"
        yield one_line(
            f"request {word.n}: the endpoint says {word.word or 'nothing'}: {sign}", width()
        )
    agree = sum(word.agrees for word in words)
    yield f"the endpoint agrees on {agree} of {len(words)} asked"
    if len(words) < misses:
        yield f"{misses - len(words)} could not be asked: their routes have no diagnostics"


def _told(miss: Explanation) -> list[str]:
    wide = width()
    about = "about " if miss.estimated else ""
    lost = f"{about}{number(miss.lost)} of {number(miss.expected)} expected tokens were not read"
    price = "" if miss.cost is None else f", {money(miss.cost)}"
    word = miss.verdict if miss.verdict != "undeclared" else "UNDECLARED"
    reason = miss.reason if miss.reason not in (miss.text, miss.verdict) else ""
    colour = {"fg": "red"} if miss.verdict == "undeclared" else {}
    lines = [
        style(one_line(f"request {miss.n}, turn {miss.turn}, {miss.route}", wide), bold=True),
        f"  {lost}{price}",
        style(wrapped(f"  {word}: {miss.text}{_in_brackets(reason)}", 4), **colour),
    ]
    for setting in miss.settings:
        sides = f"{_side(setting.before)} -> {_side(setting.after)}"
        lines.append(f"    {one_line(f'setting {setting.name}: {sides}', wide - 4)}")
    if miss.first is not None:
        lines.append(f"    first change: {one_line(miss.first.path, wide - 18)}")
        lines += excerpts(miss.first.before, miss.first.after, wide)
    elif miss.at not in ("none", "settings", "end"):
        lines.append(f"    at {one_line(miss.at, wide - 8)}")
    words = f"{miss.anthropic or '-'} (Anthropic), {miss.openai or '-'} (OpenAI)"
    lines.append(wrapped(f"    providers call it {words}", 6))
    lines.append(wrapped(f"    what to do: {miss.advice}", 6))
    return lines


def excerpts(before: str | None, after: str | None, wide: int) -> list[str]:
    """Return both sides of a difference, a line each; a side that is not there has none."""
    sides = (("-", before, "red"), ("+", after, "green"))
    return [
        style(f"    {sign} {one_line(text, wide - 6)}", fg=colour)
        for sign, text, colour in sides
        if text is not None
    ]


def _side(text: str | None) -> str:
    return "not set" if text is None else one_line(text, 24)


def _in_brackets(reason: str) -> str:
    return f" ({reason})" if reason else ""
