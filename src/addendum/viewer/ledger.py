"""The ledger of a trajectory: events as rows, a page at a time, and a search over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from addendum.log.approvals import AddedContext, ApprovalAsked, ApprovalDecided, ToolRedefined
from addendum.log.events import (
    AssistantAttempt,
    AssistantMessage,
    CacheBreak,
    CacheKept,
    CompactionFailed,
    CompactionSummary,
    DeveloperMessage,
    EndSeed,
    Event,
    RequestContext,
    RequestHeader,
    RequestSent,
    Rewind,
    RouteDowngrade,
    ServerInstructions,
    SessionStart,
    StepEnd,
    StepStart,
    SystemMessage,
    ToolCall,
    ToolPolicy,
    ToolResult,
    ToolSwitch,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.log.values import Config, ToolSchema
from addendum.viewer.figures import Bar, bar
from addendum.viewer.index import Index, Request
from addendum.viewer.notices import Notice, body, notice
from addendum.viewer.text import discreet, line, size
from addendum.viewer.words import Words

PAGE = 120
"""Rows that a page of the ledger has."""

EXCERPT = 220
"""Characters of a text that a row shows."""

PROMPT = 2_000
"""Characters of each part of a prompt that its row opens to."""

MAX_FOUND = 200
"""Events that a search gives at most."""


class Row(Struct, frozen=True):
    """An event in the ledger.

    Attributes:
        seq: The event.
        kind: What it is: key of its label, and class of its row.
        turn: Its turn.
        time: Milliseconds since the epoch.
        text: What it says, on one line.
        opens: Turn that begins with this row, if one does.
        number: For a request, its number.
        bar: For a request, its figures.
        request: For a request, what the log says of it.
        notice: For a change of tools, what it says.
        lines: What the row opens to.
        tone: `warn` or `bad` where something is to be seen.
        child: A session that the row leads to, or empty.
    """

    seq: int
    kind: str
    turn: int
    time: int
    text: str = ""
    opens: int | None = None
    number: int | None = None
    bar: Bar | None = None
    request: Request | None = None
    notice: Notice | None = None
    lines: tuple[str, ...] = ()
    tone: str = ""
    child: str = ""


class Page(Struct, frozen=True):
    """Some rows of a ledger.

    Attributes:
        rows: The rows.
        first: First event that the page covers.
        end: Event behind the last one that it covers.
        total: Events of the log.
    """

    rows: tuple[Row, ...]
    first: int
    end: int
    total: int


class Ledger:
    """Makes rows of a log's events.

    Args:
        events: The events.
        index: What is known of them.
        words: The reader's language.
    """

    def __init__(self, events: Sequence[Event], index: Index, words: Words) -> None:
        self._events = events
        self._index = index
        self._words = words

    def page(
        self, *, before: int | None = None, after: int | None = None, at: int | None = None
    ) -> Page:
        """Return a page: the last one, or the one in front of, behind or around an event.

        Args:
            before: The event that the page ends in front of.
            after: The event that it begins behind.
            at: An event that it holds.
        """
        total = len(self._index.turn_of)
        if after is not None:
            return self._forward(min(after + 1, total))
        if at is not None:
            start = self._back(min(at, total - 1), PAGE // 2)
            return self._forward(start)
        end = total if before is None else max(0, min(before, total))
        start = self._back(end, PAGE)
        return Page(tuple(self.rows(start, end)), start, end, total)

    def _back(self, end: int, count: int) -> int:
        """Return where to begin so that at least `count` rows stand in front of `end`."""
        start, found = max(0, end), 0
        while start > 0 and found < count:
            start -= 1
            found += not _silent(self._events[start])
        return start

    def _forward(self, start: int) -> Page:
        end, found, total = start, 0, len(self._index.turn_of)
        while end < total and found < PAGE:
            found += not _silent(self._events[end])
            end += 1
        return Page(tuple(self.rows(start, end)), start, end, total)

    def rows(self, start: int, end: int) -> Iterator[Row]:
        """Yield the rows of events from `start` up to, not including, `end`."""
        opens: int | None = None
        if start > 0 and isinstance(self._events[start - 1].data, TurnStart):
            opens = self._index.turn_of[start - 1]
        for seq in range(start, end):
            event = self._events[seq]
            if isinstance(event.data, TurnStart):
                opens = event.data.turn
            row = self._row(event)
            if row is None:
                continue
            if opens is not None:
                row = structs.replace(row, opens=opens)
                opens = None
            yield row

    def search(self, text: str) -> list[Row]:
        """Return the rows of events that hold a text, newest first; at most `MAX_FOUND`."""
        wanted = text.casefold()
        found: list[Row] = []
        for seq in range(len(self._index.turn_of) - 1, -1, -1):
            said = _searched(self._events[seq])
            # What is masked cannot be searched either: it could be found letter by letter.
            if wanted in said.casefold() and wanted in discreet(said).casefold():
                row = self._row(self._events[seq])
                if row is not None:
                    found.append(row)
                    if len(found) == MAX_FOUND:
                        break
        return found

    # -- one row ------------------------------------------------------------------------------

    def _row(self, event: Event) -> Row | None:
        data = event.data
        turn = self._index.turn_of[event.seq]
        if _silent(event):
            return None

        def row(kind: str, text: str = "", tone: str = "", lines: tuple[str, ...] = ()) -> Row:
            cut = line(text, EXCERPT)
            return Row(event.seq, kind, turn, event.time, cut, tone=tone, lines=lines)

        match data:
            case RequestSent():
                return self._request(event, data, turn)
            case RequestHeader():
                return self._header(event, data, turn)
            case SystemMessage(static=static, conversation=conversation):
                texts = [each for each in (static, conversation) if each]
                cut = tuple(line(each, PROMPT) for each in texts)
                sizes = self._words("call.size", size=size(sum(map(len, texts))))
                return row("prompt", f"{sizes} · {' '.join(texts)}", lines=cut)
            case DeveloperMessage():
                told = notice(data, self._words)
                made = row("developer", "" if told else body(data))
                return structs.replace(made, notice=told)
            case SubagentStarted(session=child) | SubagentEnded(session=child):
                return structs.replace(row("subagent", self._subagent(data)), child=child)
            case _:
                kind, text, tone = self._plain(event)
                return row(kind, text, tone)

    def _request(self, event: Event, data: RequestSent, turn: int) -> Row:
        own = self._index.request_at(event.seq)
        figures = bar([own]) if own is not None else None
        tone = ""
        if own is not None and own.short:
            tone = "warn" if own.breaks else "bad"
        kind = _PURPOSES.get(data.purpose, "request")
        return Row(
            event.seq,
            kind,
            turn,
            event.time,
            data.route,
            number=data.number,
            bar=figures,
            request=own,
            tone=tone,
        )

    def _header(self, event: Event, data: RequestHeader, turn: int) -> Row:
        earlier = self._index.header_before(event.seq)
        before: dict[str, ToolSchema] = {}
        settings = None
        if earlier is not None:
            last = self._events[earlier].data
            assert isinstance(last, RequestHeader)
            settings = last.header.config
            before = {tool.name: tool for tool in last.header.tools}
        after = {tool.name: tool for tool in data.header.tools}
        came = [name for name in after if name not in before]
        went = [name for name in before if name not in after]
        anew = [
            name
            for name in after
            if name in before and before[name].identity() != after[name].identity()
        ]
        words = self._words
        text = words("header.active", count=len(after))
        lines = tuple(
            words(key, names=line(", ".join(names), 4_000))
            for key, names in (
                ("message.toolsAdded", came),
                ("header.redefined", anew),
                ("message.toolsRemoved", went),
            )
            if names
        )
        parts = [words(f"reason.{data.reason}"), text]
        if data.header.config != settings:
            parts += _settings(data.header.config)
        head = data.reason == "initial" or data.head
        kind = "head" if head else "header"
        return Row(
            event.seq,
            kind,
            turn,
            event.time,
            line(" · ".join(parts), EXCERPT),
            lines=lines,
        )

    def _subagent(self, data: SubagentStarted | SubagentEnded) -> str:
        words = self._words
        if isinstance(data, SubagentStarted):
            excluded = ", ".join(data.excluded)
            return (
                words("subagent.started")
                if not excluded
                else words("subagent.without", names=excluded)
            )
        told = words("subagent.ended", count=data.requests)
        prompt = data.usage.prompt
        return told if prompt is None else f"{told} · {words('ledger.tokens', count=prompt)}"

    def _plain(self, event: Event) -> tuple[str, str, str]:
        """Return kind, text and tone of an event that needs nothing else to be told."""
        words = self._words
        match event.data:
            case SessionStart(session=session):
                return "start", session, ""
            case EndSeed(parent=parent, inherited=count):
                return "fork", words("ledger.fork", parent=parent, count=count), ""
            case Rewind(to_turn=turn):
                return "rewind", words("ledger.rewind", turn=turn), ""
            case TurnEnd(reason=reason, error=error):
                return "end", f"{words(f'ended.{reason}')} {error or ''}", "bad"
            case UserMessage(text=text):
                return "user", text, ""
            case ServerInstructions(server=server, text=text):
                return "server", f"{server}: {text}", ""
            case AssistantMessage() as said:
                names = ", ".join(call.name for call in said.calls)
                return "model", said.text or f"→ {names}", ""
            case AssistantAttempt(error=error):
                return "attempt", error, "bad"
            case ToolCall(name=name, arguments=arguments, origin=origin):
                through = f" ({words('call.dispatched')})" if origin == "dispatched" else ""
                return "call", f"{name}{through} {arguments}", ""
            case ToolResult(name=name, text=text, is_error=failed):
                return "result", f"{name}: {text}", "bad" if failed else ""
            case ApprovalAsked(calls=calls):
                return "asked", ", ".join(each.name for each in calls if each.reason), "warn"
            case ApprovalDecided(decisions=decisions):
                kinds = [words(f"decided.{_known(each.kind)}") for each in decisions]
                return "decided", ", ".join(kinds), ""
            case AddedContext(source=source, text=text):
                return "context", f"{source}: {text}", ""
            case RequestContext() as context:
                told = f"{context.route} · {context.projection} · tail {context.tail}"
                return "route", told, ""
            case CacheBreak() as found:
                where = words(f"at.{found.at}")
                return (
                    "break",
                    f"{words(_reason(words, found.reason))} · {where} {found.detail}",
                    ("warn"),
                )
            case ToolSwitch() as switch:
                state = words("switch.on" if switch.on else "switch.off")
                return "switch", f"{switch.name}: {state} ({switch.by})", ""
            case ToolPolicy(disabled=disabled):
                return "policy", ", ".join(disabled) or words("policy.none"), ""
            case CompactionSummary(text=text):
                return "summary", text, ""
            case CompactionFailed(reason=why):
                return "summary", words("turn.not_compacted", why=why), "bad"
            case CacheKept(route=route, usage=usage):
                tokens = "" if usage.prompt is None else words("ledger.tokens", count=usage.prompt)
                return "kept", " · ".join(filter(None, (route, tokens))), ""
            case ToolRedefined(name=name, action=action):
                return "redefined", f"{name} · {words(f'redefined.{action}')}", "warn"
            case RouteDowngrade() as downgrade:
                names = ", ".join(downgrade.rejected)
                return "downgrade", f"{downgrade.route}: {names} → {downgrade.projection}", "warn"
            case _:
                return "other", event.type, ""


_PURPOSES = {"compaction": "compacts", "keep-alive": "keeps"}


def _settings(config: Config) -> list[str]:
    given = [(name, getattr(config, name)) for name in ("effort", "temperature", "max_tokens")]
    told = [f"{name} {value}" for name, value in given if value is not None]
    return [f"{config.provider}:{config.model}", *told]


def _silent(event: Event) -> bool:
    """Say whether an event has no row: its turn or its request tells of it."""
    data = event.data
    if isinstance(data, TurnEnd):
        return data.reason == "done"
    return isinstance(data, TurnStart | StepStart | StepEnd)


def _known(kind: str) -> str:
    return kind if kind in ("approve", "deny", "edit", "respond") else "deny"


def _reason(words: Words, reason: str) -> str:
    key = "break." + reason.replace(" ", "_")
    return key if key in words.texts else "break.other"


def _searched(event: Event) -> str:
    """Return the text of an event that a search looks into."""
    data = event.data
    match data:
        case UserMessage(text=text) | CompactionSummary(text=text):
            return text
        case AssistantMessage() as said:
            calls = " ".join(f"{call.name} {call.arguments} {call.id}" for call in said.calls)
            return f"{said.text} {said.reasoning} {calls}"
        case ToolCall(name=name, arguments=arguments, call_id=call_id):
            return f"{name} {arguments} {call_id}"
        case ToolResult(name=name, text=text, call_id=call_id):
            return f"{name} {call_id} {text}"
        case SystemMessage(static=static, conversation=conversation):
            return f"{static} {conversation}"
        case DeveloperMessage():
            return body(data)
        case ServerInstructions(server=server, text=text):
            return f"{server} {text}"
        case ToolSwitch(name=name) | ToolRedefined(name=name):
            return name
        case SubagentStarted(session=child) | SubagentEnded(session=child):
            return child
        case CompactionFailed(reason=why):
            return why
        case CacheBreak(reason=reason, detail=detail):
            return f"{reason} {detail}"
        case AssistantAttempt(error=error, text=text):
            return f"{error} {text}"
        case RequestHeader():
            return " ".join(tool.name for tool in data.header.tools)
        case RequestSent(route=route, number=number):
            return f"{route} {number}"
        case _:
            return event.type
