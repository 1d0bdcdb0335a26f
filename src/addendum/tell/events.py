"""What an event says to people: one telling of every kind, for terminal, page and export.

Texts are as they stand in the log. Whoever shows them makes them fit: bounds, masks, escapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct

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
    ToolLeftOut,
    ToolPolicy,
    ToolResult,
    ToolSwitch,
    TurnEnd,
    TurnStart,
    Unknown,
    UserMessage,
)
from addendum.log.known import KnownTool, ServerAway, ToolsKnown
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.log.values import Config, ToolSchema, Usage
from addendum.routes.shapes import SHAPES
from addendum.tell.changes import ToolChange, body, change
from addendum.tell.words import Words

Tone: TypeAlias = Literal["", "warn", "bad"]
"""Whether something is to be seen (`warn`) or went wrong (`bad`)."""

_DECISIONS = ("approve", "deny", "edit", "respond")
_PURPOSES = {"compaction": "compacts", "keep-alive": "keeps"}


class Part(Struct, frozen=True):
    """One of several things that an event says, each on a line of its own.

    Attributes:
        title: A word for it, of at most eight letters.
        text: What it says.
    """

    title: str
    text: str


class Telling(Struct, frozen=True):
    """What an event says.

    Attributes:
        kind: What it is: key of its label in the reader's language, and class of its row.
        title: A word for it in a list of lines, of at most eight letters.
        text: What it says, in one go.
        tone: Whether something is to be seen.
        parts: The same as lines, where it says several things, or nothing in a list of lines; None
            where `text` is its one line.
        detail: What it opens to, a text each.
        child: A session that it leads to, or empty.
        note: The same as a sentence between the messages of a conversation; None where it has no
            place there, or one of its own.
        change: What it says of a change of tools, if that is all it says.
        searched: What a search looks into beside `text`, such as ids.
    """

    kind: str
    title: str
    text: str = ""
    tone: Tone = ""
    parts: tuple[Part, ...] | None = None
    detail: tuple[str, ...] = ()
    child: str = ""
    note: str | None = None
    change: ToolChange | None = None
    searched: str = ""

    def lines(self) -> tuple[Part, ...]:
        """Return what it says as lines."""
        return (Part(self.title, self.text),) if self.parts is None else self.parts


def describe(event: Event, words: Words, before: RequestHeader | None = None) -> Telling:
    """Return what an event says.

    Args:
        event: The event.
        words: The reader's language.
        before: For a header, the one in front of it; None where there is none.
    """
    data = event.data
    if isinstance(data, Unknown):
        return Telling("other", "event", event.type)

    def telling(
        kind: str, text: str = "", tone: Tone = "", *, note: str | None = None, searched: str = ""
    ) -> Telling:
        return Telling(kind, data.facts.title, text, tone, note=note, searched=searched)

    match data:
        case SessionStart(session=session):
            return telling("start", session)
        case EndSeed(parent=parent, inherited=count):
            text = words("ledger.fork", parent=parent, count=count)
            return telling("fork", text, note=words("turn.forked", parent=parent))
        case Rewind(to_turn=turn, reason=reason):
            text = words(f"rewind.{reason}", turn=turn)
            return telling("rewind", text, note=words("turn.rewound"))
        case TurnStart(turn=turn):
            return telling("turn", str(turn))
        case TurnEnd(reason=reason, error=error):
            if reason == "done":
                return Telling("end", data.facts.title, parts=())
            return telling("end", f"{words(f'ended.{reason}')} {error or ''}".rstrip(), "bad")
        case StepStart() | StepEnd():
            return telling("step")
        case SystemMessage():
            return _prompt(data, words)
        case UserMessage(text=text, tail=tail):
            parts = (Part("you", text), Part("tail", tail)) if tail else None
            return Telling("user", data.facts.title, text, parts=parts)
        case ServerInstructions(server=server, text=text):
            return telling("server", words("server.says", server=server, text=text))
        case DeveloperMessage():
            names = body(data)
            moved = change(data, words)
            text = names if moved is None else moved.title
            return Telling("developer", data.facts.title, text, change=moved, searched=names)
        case AssistantMessage():
            return _answer(data, words)
        case AssistantAttempt(error=error, text=text):
            return telling("attempt", error, "bad", searched=text)
        case ToolCall(name=name, arguments=arguments, call_id=call_id):
            text = f"{name} {arguments}{_through(data.origin, words)}"
            return telling("call", text, searched=call_id)
        case ToolResult(name=name, text=text, is_error=failed, code=code, call_id=call_id):
            state = f" {words('call.failed')}{f' ({code})' if code else ''}" if failed else ""
            tone = "bad" if failed else ""
            return telling("result", f"{name}{state}: {text}", tone, searched=call_id)
        case ApprovalAsked(calls=calls):
            asked = [each for each in calls if each.reason is not None]
            return Telling(
                "asked",
                data.facts.title,
                ", ".join(each.name for each in asked),
                "warn",
                parts=tuple(
                    Part(data.facts.title, f"{each.name} {each.arguments}: {each.reason}")
                    for each in asked
                ),
            )
        case ApprovalDecided(decisions=decisions):
            kinds = [words(f"decided.{_decision(each.kind)}") for each in decisions]
            return Telling(
                "decided",
                data.facts.title,
                ", ".join(kinds),
                parts=tuple(
                    Part(data.facts.title, f"{each.kind} {each.arguments or each.text}".rstrip())
                    for each in decisions
                ),
            )
        case AddedContext(source=source, text=text):
            return telling("context", words("context.behind", source=source, text=text))
        case RequestHeader():
            return _header(data, words, before)
        case RequestContext():
            note = words("turn.route", route=data.route, projection=data.projection)
            return telling("route", _rendering(data, words), note=note)
        case RequestSent(purpose=purpose, route=route, number=number):
            kind = _PURPOSES.get(purpose, "request")
            return telling(kind, route, searched=str(number))
        case CacheBreak(reason=reason, at=place, detail=detail, also=also):
            why = ", ".join(break_reason(each, words) for each in (reason, *also))
            where = words(f"at.{place}")
            note = f"{words('turn.broken', reason=why)} · {where}"
            text = f"{why} · {where} {detail}".rstrip()
            return telling("break", text, "warn", note=note, searched=reason)
        case CacheKept(route=route, usage=usage):
            return telling("kept", " · ".join(filter(None, (route, _tokens(usage, words)))))
        case ToolSwitch(kind=kind, name=name, on=on, by=by):
            state = words("switch.on" if on else "switch.off")
            return telling("switch", words(f"switch.{kind}", name=name, state=state, by=by))
        case ToolPolicy(disabled=disabled):
            return telling("policy", ", ".join(disabled) or words("policy.none"))
        case ToolRedefined(name=name, action=action, old=old, new=new):
            holds = words(f"redefined.{action}")
            note = f"{words('turn.redefined', name=name)} · {holds}"
            text = f"{name} {old[:8]} → {new[:8]} · {holds}"
            return telling("redefined", text, "warn", note=note)
        case ToolsKnown(tools=tools):
            return telling("known", "; ".join(_known(each, words) for each in tools))
        case ServerAway(server=server, why=why):
            text = (
                words("away.why", server=server, why=why)
                if why
                else words("away.back", server=server)
            )
            return telling("away", text, "warn" if why else "")
        case SubagentStarted(session=child, excluded=excluded):
            names = ", ".join(excluded)
            text = words("subagent.without", names=names) if names else words("subagent.started")
            return Telling(
                "subagent",
                data.facts.title,
                text,
                parts=(Part(data.facts.title, f"{text} · {child}"),),
                child=child,
                note=words("subagent.started"),
                searched=child,
            )
        case SubagentEnded(session=child, requests=count, usage=usage):
            ended = words("subagent.ended", count=count)
            text = " · ".join(filter(None, (ended, _tokens(usage, words))))
            return Telling(
                "subagent",
                data.facts.title,
                text,
                parts=(Part(data.facts.title, f"{text} · {child}"),),
                child=child,
                searched=child,
            )
        case CompactionSummary(text=text):
            return telling("summary", text)
        case CompactionFailed(reason=why):
            text = words("turn.not_compacted", why=why)
            return telling("summary", text, "bad", note=text)
        case RouteDowngrade(route=route, rejected=rejected, projection=projection):
            names = ", ".join(rejected)
            key = "turn.given_up" if SHAPES.issuperset(rejected) else "turn.downgrade"
            text = words(key, route=route, fields=names, projection=projection)
            return telling("downgrade", text, "warn", note=text)
        case ToolLeftOut(name=name, why=why, partly=partly):
            text = words("turn.left_out_partly" if partly else "turn.left_out", name=name, why=why)
            return telling("left", text, "warn", note=text, searched=f"{data.server} {data.route}")
        case _:
            assert_never(data)


def is_quiet(event: Event) -> bool:
    """Say whether an event says nothing that is not told by its turn or its request."""
    data = event.data
    if isinstance(data, TurnEnd):
        return data.reason == "done"
    return isinstance(data, TurnStart | StepStart | StepEnd)


def break_reason(reason: str, words: Words) -> str:
    """Return the reason of a break in the reader's language; an unknown one as it is."""
    return words.texts.get(f"break.{reason.replace(' ', '_')}", reason)


def _prompt(system_message: SystemMessage, words: Words) -> Telling:
    texts = tuple(each for each in (system_message.static, system_message.conversation) if each)
    sizes = words("call.size", size=f"{sum(map(len, texts)):,}")
    title = system_message.facts.title
    # A line has no room for a prompt; what opens has.
    return Telling(
        "prompt",
        title,
        f"{sizes} · {' '.join(texts)}",
        parts=(Part(title, sizes),),
        detail=texts,
    )


def _answer(assistant_message: AssistantMessage, words: Words) -> Telling:
    names = ", ".join(call.name for call in assistant_message.calls)
    parts: list[Part] = []
    if assistant_message.reasoning:
        parts.append(Part("thinks", assistant_message.reasoning))
    parts += (
        Part("call", f"{call.name} {call.arguments}{_through(call.origin, words)}")
        for call in assistant_message.calls
    )
    if assistant_message.text:
        parts.append(Part(assistant_message.facts.title, assistant_message.text))
    calls = " ".join(f"{call.name} {call.arguments} {call.id}" for call in assistant_message.calls)
    return Telling(
        "model",
        assistant_message.facts.title,
        assistant_message.text or f"→ {names}",
        parts=tuple(parts),
        searched=f"{assistant_message.reasoning} {calls}",
    )


def _through(origin: str, words: Words) -> str:
    return f" ({words('call.dispatched')})" if origin == "dispatched" else ""


def _known(tool: KnownTool, words: Words) -> str:
    """Return what is known of a tool, in a few words."""
    source = words("known.own") if tool.server is None else tool.server
    says = "known.harmless" if tool.read_only else "known.mild"
    said = "" if tool.destructive else f", {words(says)}"
    return f"{tool.name} ({source}{said})"


def _decision(kind: str) -> str:
    return kind if kind in _DECISIONS else "deny"


def _tokens(usage: Usage, words: Words) -> str:
    return "" if usage.prompt is None else words("ledger.tokens", count=usage.prompt)


def _rendering(request_context: RequestContext, words: Words) -> str:
    text = f"{request_context.route} · {request_context.projection}"
    if request_context.projection in ("in-history", "addition-only"):
        text += f", definitions {request_context.definitions}, removals {request_context.removals}"
    return f"{text} · tail {request_context.tail}"


def _header(request_header: RequestHeader, words: Words, before: RequestHeader | None) -> Telling:
    earlier = {} if before is None else {tool.name: tool for tool in before.header.tools}
    now = {tool.name: tool for tool in request_header.header.tools}
    detail = tuple(_moved(earlier, now, words))
    parts = [words(f"reason.{request_header.reason}"), words("header.active", count=len(now))]
    if before is None or request_header.header.config != before.header.config:
        parts += _settings(request_header.header.config)
    head = request_header.reason == "initial" or request_header.head
    title = "head" if head else request_header.facts.title
    return Telling(
        "head" if head else "header",
        title,
        " · ".join(parts),
        parts=tuple(Part(title, each) for each in detail),
        detail=detail,
        searched=" ".join(now),
    )


def _moved(
    earlier: dict[str, ToolSchema], now: dict[str, ToolSchema], words: Words
) -> Iterator[str]:
    """Yield what came, was defined anew and went, a line each."""
    kept = [name for name in now if name in earlier]
    for key, names in (
        ("message.toolsAdded", [name for name in now if name not in earlier]),
        (
            "header.redefined",
            [name for name in kept if earlier[name].identity() != now[name].identity()],
        ),
        ("message.toolsRemoved", [name for name in earlier if name not in now]),
    ):
        if names:
            yield words(key, names=", ".join(names))


def _settings(config: Config) -> list[str]:
    values = [(name, getattr(config, name)) for name in ("effort", "temperature", "max_tokens")]
    return [
        f"{config.provider}:{config.model}",
        *(f"{name} {value}" for name, value in values if value is not None),
    ]
