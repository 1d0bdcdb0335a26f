"""`addendum show`: a session's log, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from msgspec import Raw

from addendum.cli.stored import read_log
from addendum.cli.terminal import (
    json_option,
    line,
    number,
    print_json,
    run_async,
    store_option,
    style,
    width,
)
from addendum.log import codec
from addendum.log.approvals import AddedContext, ApprovalAsked, ApprovalDecided
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CacheBreak,
    CompactionSummary,
    EndSeed,
    Event,
    RequestContext,
    RequestHeader,
    RequestSent,
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
from addendum.log.session_log import SessionLog
from addendum.log.values import ToolSchema, Usage

_NAMES = 20
"""Names of tools that are told of one change."""


@click.command()
@click.argument("session", metavar="ID")
@store_option
@json_option
def show(session: str, store: str | None, as_json: bool) -> None:
    """Show a session's log: its turns, its requests with figures, its changes of tools.

    ID is the session's id, or as much of its beginning as no other has.
    """
    row, log = run_async(read_log, store, session)
    if as_json:
        events = [Raw(codec.encode_event(event)) for event in log.events]
        print_json(
            {
                "session": log.session,
                "parent": row.parent,
                "turns": log.turns,
                "requests": requests(log),
                "events": events,
            }
        )
        return
    wide = width()
    click.echo(style(line(f"session {log.session}: {log.turns} turns", wide), bold=True))
    for seq, what, text in lines(log):
        if what == "turn":
            click.echo(style(line(f"turn {text}", wide), bold=True))
        else:
            click.echo(f"{seq:>6}  {what:8}  {line(text, wide - 18)}")


def requests(log: SessionLog) -> list[dict[str, Any]]:
    """Return each request of a log with what the provider counted; null where it did not say."""
    found: list[dict[str, Any]] = []
    breaks: list[CacheBreak] = []
    for event in log.events:
        data = event.data
        if isinstance(data, CacheBreak):
            breaks.append(data)
        elif isinstance(data, RequestSent):
            found.append(
                {
                    "n": data.number,
                    "turn": data.turn,
                    "seq": event.seq,
                    "route": data.route,
                    "purpose": data.purpose,
                    "answered": False,
                    "prompt_tokens": None,
                    "cache_read": None,
                    "cache_write": None,
                    "output": None,
                    "breaks": [
                        {"reason": each.reason, "at": each.at, "detail": each.detail}
                        for each in breaks
                    ],
                }
            )
            breaks = []
        elif isinstance(data, AssistantMessage | CompactionSummary) and found:
            if isinstance(data, AssistantMessage) or data.route is not None:
                usage = data.usage
                found[-1] |= {
                    "answered": True,
                    "prompt_tokens": usage.prompt,
                    "cache_read": usage.cache_read,
                    "cache_write": usage.cache_write,
                    "output": usage.output,
                }
    return found


def lines(log: SessionLog) -> Iterator[tuple[int, str, str]]:
    """Return what a log says, a line each: seq, a word for what it is, and text."""
    tools: dict[str, ToolSchema] = {}
    number_of = 0
    for event in log.events:
        data, seq = event.data, event.seq
        if isinstance(data, RequestSent):
            number_of = data.number
        elif isinstance(data, RequestHeader):
            after = {tool.name: tool for tool in data.header.tools}
            first = data.reason == "initial" or data.head
            yield from ((seq, "head" if first else "tools", each) for each in _moved(tools, after))
            tools = after
        elif isinstance(data, AssistantMessage):
            yield seq, "request", _figures(number_of, data.route, data.usage)
            if data.reasoning:
                yield seq, "thinks", data.reasoning
            for call in data.calls:
                through = " (dispatched)" if call.origin == "dispatched" else ""
                yield seq, "call", f"{call.name} {call.arguments}{through}"
            if data.text:
                yield seq, "model", data.text
        elif isinstance(data, CompactionSummary):
            if data.route is not None:
                yield seq, "request", _figures(number_of, data.route, data.usage)
            yield seq, "summary", data.text
        else:
            yield from ((seq, what, text) for what, text in _plain(event))


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
        case AddedContext(source=source, text=text):
            yield "context", f"behind {source}: {text}"
        case AssistantAttempt(error=error):
            yield "failed", error
        case RouteDowngrade() as downgrade:
            names = ", ".join(downgrade.rejected)
            yield "refused", f"{downgrade.route} refuses {names}; on by {downgrade.projection}"
        case Rewind(to_turn=turn):
            yield "rewind", f"to before turn {turn}"
        case EndSeed(parent=parent, inherited=inherited):
            yield "fork", f"of {parent}, with its first {number(inherited)} events"
        case _:
            pass


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
