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
from addendum.cli.chat_view import money
from addendum.cli.costs import dead_weights, request_fields, total_fields, total_lines
from addendum.cli.stored import altered, altered_lines, followed, read_log
from addendum.cli.terminal import (
    echo,
    json_option,
    line,
    number,
    print_json,
    run_async,
    store_option,
    style,
    width,
    wrapped,
)
from addendum.log import codec
from addendum.log.approvals import AddedContext, ApprovalAsked, ApprovalDecided, ToolRedefined
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CacheBreak,
    CacheKept,
    CompactionFailed,
    CompactionSummary,
    EndSeed,
    Event,
    RequestContext,
    RequestHeader,
    Rewind,
    RouteDowngrade,
    ServerInstructions,
    SystemMessage,
    ToolPolicy,
    ToolResult,
    ToolSwitch,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.exchanges import FOLLOWED, Exchange, Exchanges, exchanges
from addendum.log.session_log import SessionLog
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.log.values import ToolSchema, Usage

_WHOLE = ("request", "route", "cost")
"""What is never cut: names of routes, and figures."""

_FIGURES = 600
"""Characters of it, at most."""

_NAMES = 20
"""Names of tools that are told of one change."""


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
    echo(style(line(f"session {log.session}: {log.turns} turns", wide), bold=True))
    for text in altered_lines(log):
        echo(text)
    teller = Teller(Figures(counted, dead))
    for event in log.events:
        for told in teller.take(event):
            _print(told, wide)
    for text in total_lines(own):
        echo(line(text, wide))


async def _follow(store: str | None, session: str, as_json: bool) -> None:
    teller, wide, seen = Teller(), width(), 0
    async with aclosing(followed(store, session)) as logs:
        async for log in logs:
            if not seen and not as_json:
                echo(style(line(f"session {log.session}", wide), bold=True))
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
        echo(style(line(f"turn {text}", wide), bold=True))
        return
    begins = f"{seq:>6}  {what:8}  "
    whole = line(text, _FIGURES) if what in _WHOLE else line(text, wide - len(begins))
    said = begins + whole
    echo(said if len(said) <= wide else wrapped(said, len(begins)))


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
        self._tools: dict[str, ToolSchema] = {}

    def take(self, event: Event) -> Iterator[tuple[int, str, str]]:
        """Return what the next event says, a line each."""
        data, seq = event.data, event.seq
        own = self._exchanges.take(event) if type(data) in FOLLOWED else None
        if own is not None and own.end is None:
            return  # It is told of when it has ended.
        if own is not None and own.counted:
            yield from self._request(seq, own)
        if isinstance(data, RequestHeader):
            after = {tool.name: tool for tool in data.header.tools}
            first = data.reason == "initial" or data.head
            word = "head" if first else "tools"
            yield from ((seq, word, each) for each in _moved(self._tools, after))
            self._tools = after
        elif isinstance(data, AssistantMessage):
            if data.reasoning:
                yield seq, "thinks", data.reasoning
            for call in data.calls:
                through = " (dispatched)" if call.origin == "dispatched" else ""
                yield seq, "call", f"{call.name} {call.arguments}{through}"
            if data.text:
                yield seq, "model", data.text
        elif isinstance(data, AssistantAttempt):
            yield seq, "failed", data.error
        elif isinstance(data, CacheKept):
            yield seq, "kept", "the cache, for another lifetime"
        elif isinstance(data, CompactionSummary):
            yield seq, "summary", data.text
        elif isinstance(data, CompactionFailed):
            yield seq, "failed", f"no compaction: {data.reason}"
        else:
            yield from ((seq, what, text) for what, text in _plain(event))

    def _request(self, seq: int, own: Exchange) -> Iterator[tuple[int, str, str]]:
        yield seq, "request", _figures(own.sent.number, own.sent.route, own.usage)
        if self._figures is not None and (told := self._figures.told(own.event.seq)):
            yield seq, "cost", told


def _plain(event: Event) -> Iterator[tuple[str, str]]:
    """Return what an event says that needs nothing else to be told."""
    match event.data:
        case TurnStart(turn=turn):
            yield "turn", str(turn)
        case TurnEnd(reason=reason, error=error) if reason != "done":
            yield "end", f"{reason}: {error or ''}"
        case UserMessage(text=text, tail=tail):
            yield "you", text
            if tail:
                yield "tail", tail
        case SystemMessage(static=static, conversation=conversation):
            sizes = f"{number(len(static))} and {number(len(conversation))} characters"
            yield "prompt", f"static and conversation text of {sizes}"
        case RequestContext() as context:
            native = f", definitions {context.definitions}, removals {context.removals}"
            told = native if context.projection in ("in-history", "addition-only") else ""
            yield "route", f"{context.route}: {context.projection}{told}, tail {context.tail}"
        case CacheBreak(reason=reason, at=at, detail=detail):
            yield "break", f"{reason}, at {at}{': ' if detail else ''}{detail}"
        case ToolSwitch() as switch:
            state = "on" if switch.on else "off"
            yield "switch", f"{switch.kind} {switch.name} {state}, by {switch.by}"
        case ToolPolicy(disabled=disabled):
            yield "refuse", ", ".join(disabled) or "nothing"
        case ServerInstructions(server=server, text=text):
            yield "server", f"{server} says: {text}"
        case ToolResult() as result:
            failed = f" failed ({result.code})" if result.is_error else ""
            yield "result", f"{result.name}{failed}: {result.text}"
        case ApprovalAsked(calls=calls):
            for call in calls:
                if call.reason is not None:
                    yield "ask", f"{call.name} {call.arguments}: {call.reason}"
        case ApprovalDecided(decisions=decisions):
            for each in decisions:
                yield "decide", f"{each.kind} {each.arguments or each.text}".rstrip()
        case ToolRedefined() as found:
            yield "anew", f"{found.name} {found.old[:8]} to {found.new[:8]}: {found.action}"
        case SubagentStarted(session=child):
            yield "child", f"session {child}"
        case SubagentEnded(session=child, requests=requests, usage=usage):
            yield "child", f"session {child} ended, {number(requests)} requests: {_cost(usage)}"
        case AddedContext(source=source, text=text):
            yield "context", f"behind {source}: {text}"
        case RouteDowngrade() as downgrade:
            names = ", ".join(downgrade.rejected)
            yield "refused", f"{downgrade.route} refuses {names}; on by {downgrade.projection}"
        case Rewind(to_turn=turn, reason=reason):
            said = "" if reason == "rewind" else f", to {reason}"
            yield "rewind", f"to before turn {turn}{said}"
        case EndSeed(parent=parent, inherited=inherited):
            yield "fork", f"of {parent}, with its first {number(inherited)} events"
        case _:
            pass


def _cost(usage: Usage) -> str:
    known = ((usage.prompt, "in"), (usage.cache_read, "read"), (usage.output, "out"))
    return ", ".join(f"{'?' if size is None else number(size)} {word}" for size, word in known)


def _moved(before: dict[str, ToolSchema], after: dict[str, ToolSchema]) -> Iterator[str]:
    """Return what came (+), was defined anew (~) and went (-), a line each."""
    changed = [
        ("+", [name for name in after if name not in before]),
        ("~", [n for n in after if n in before and before[n].identity() != after[n].identity()]),
        ("-", [name for name in before if name not in after]),
    ]
    for sign, names in changed:
        if names:
            yield f"{sign}{len(names)}: {', '.join(names[:_NAMES])}"


def _figures(request: int, route: str, usage: Usage) -> str:
    parts = [
        f"prompt {number(usage.prompt)}",
        f"read {number(usage.cache_read)}",
        f"written {number(usage.cache_write)}",
        f"out {number(usage.output)}",
    ]
    return f"{request}: {', '.join(parts)}  {route}"
