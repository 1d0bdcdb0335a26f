"""`addendum diff`: two requests of a session, segment by segment in cache order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import click
from msgspec import structs

from addendum.agent.replay import replay
from addendum.cache.compare import Change, Comparison, compare
from addendum.cache.record import RequestRecord, readings
from addendum.cli.flags import NAME
from addendum.cli.stored import altered, altered_lines, read_log
from addendum.cli.terminal import (
    echo,
    json_option,
    print_json,
    run_async,
    store_option,
    style,
    table,
    width,
)
from addendum.cli.why import excerpts
from addendum.errors import ConfigurationError
from addendum.lines import one_line
from addendum.log.session_log import SessionLog
from addendum.tell.figures import number

_SIGNS = {"same": " same", "changed": "~ changed", "added": "+ added", "removed": "- removed"}
_FOLDED = 3
"""Unchanged segments in a row from which on they are told in one line."""

_WHERE, _WHAT = 28, 16


@click.command()
@click.argument("session", type=NAME, metavar="ID")
@click.argument("a", type=click.IntRange(1))
@click.argument("b", type=click.IntRange(1))
@store_option
@json_option
def diff(session: str, a: int, b: int, store: str | None, as_json: bool) -> None:
    """Compare requests A and B of a session, segment by segment in cache order.

    Tokens of segments are estimates by bytes: providers report totals only.
    """
    _, log = run_async(read_log, store, session)
    before, after = two_requests(log, a, b)
    seen = compare(*readings([before, after]))
    if as_json:
        print_json(
            {
                "session": log.session,
                "a": _about(before),
                "b": _about(after),
                "altered": altered(log),
                "extends": seen.first is None and not seen.settings,
                "kept_bytes": seen.kept,
                "first": None if seen.first is None else structs.asdict(seen.first),
                "settings": [structs.asdict(each) for each in seen.settings],
                "tokens": "estimated",
                "segments": [structs.asdict(each) for each in seen.changes],
            }
        )
    else:
        echo("\n".join(_shown(log, before, after, seen)))


def two_requests(log: SessionLog, a: int, b: int) -> tuple[RequestRecord, RequestRecord]:
    """Return two requests of a log by their numbers.

    Raises:
        ConfigurationError: One of them is not there.
    """
    by_number: dict[int, RequestRecord] = {}
    numbers: list[int] = []
    for each in replay(log):
        numbers.append(each.record.n)
        if each.record.n in (a, b):
            by_number[each.record.n] = each.record
        if len(by_number) == len({a, b}):
            return by_number[a], by_number[b]
    missing = a if a not in by_number else b
    there = f"requests {numbers[0]} to {numbers[-1]}" if numbers else "no requests yet"
    raise ConfigurationError(f"session {log.session} has {there}, not {missing}")


def _about(record: RequestRecord) -> dict[str, object]:
    return {
        "n": record.n,
        "turn": record.turn,
        "route": record.route,
        "bytes": len(record.body),
        "prompt_tokens": record.usage.prompt,
        "cache_read": record.usage.cache_read,
        "declared": [structs.asdict(each) for each in record.declared],
    }


def _shown(
    log: SessionLog, before: RequestRecord, after: RequestRecord, comparison: Comparison
) -> Iterator[str]:
    wide = width()
    yield style(
        one_line(f"session {log.session}: request {before.n} to {after.n}", wide), bold=True
    )
    yield from altered_lines(log)
    for record in (before, after):
        about = (
            f"{record.n}: turn {record.turn}, {number(len(record.body))} bytes, prompt "
            f"{number(record.usage.prompt)}, read {number(record.usage.cache_read)}, {record.route}"
        )
        yield f"  {one_line(about, wide - 2)}"
    for setting in comparison.settings:
        yield f"  setting {one_line(setting.name, 30)} differs"
        yield from excerpts(setting.before or "not set", setting.after or "not set", wide)
    yield ""
    yield table(
        ("", "where", "what", "bytes", "~tokens"), list(_rows(comparison.changes)), right=(3, 4)
    )
    yield ""
    first = comparison.first
    if first is not None:
        yield f"first difference: {one_line(first.path, wide - 18)}"
        yield from excerpts(first.before, first.after, wide)
    elif comparison.settings:
        yield f"the content of request {before.n} stands; settings that count differ"
    else:
        yield f"request {after.n} begins with all of request {before.n}"


def _rows(changes: Sequence[Change]) -> Iterator[list[str]]:
    for same, group in groupby(changes, key=lambda each: each.state == "same"):
        run = list(group)
        if same and len(run) >= _FOLDED:
            yield _row(
                _SIGNS["same"],
                f"{_short(run[0])} to {_short(run[-1])}",
                f"{number(len(run))} segments",
                sum(each.size for each in run),
                sum(each.tokens for each in run),
            )
            continue
        for each in run:
            what = f"{each.role} {each.type}" if each.kind == "message" else each.name or each.type
            size = each.size if each.after is not None else each.size_before
            where = (each.after or each.before or "") + ("" if each.in_prefix else " *")
            yield _row(_SIGNS[each.state], where, what, size, each.tokens)


def _short(change: Change) -> str:
    path = change.after or change.before or ""
    return path.split("].", 1)[0] + "]" if "]." in path else path


def _row(state: str, where: str, what: str, size: int, tokens: int) -> list[str]:
    return [
        state,
        one_line(where, _WHERE),
        one_line(what, _WHAT),
        number(size),
        f"~{number(tokens)}",
    ]
