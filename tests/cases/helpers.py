"""What the numbered cases share: a notation for tools, logs written as the loop writes them, and
real sessions against the lab.

Notation, as in the table: `a` is a tool, `b*` carries the deferral flag, `b'` is b redefined; a
projection is written `a b* | m1 +b, m2 -b`: declarations, then what is left of each developer
message, numbered in log order.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from addendum.agent.agent import Agent
from addendum.agent.session import Session
from addendum.lab.exchange import Switches
from addendum.lab.script import Script
from addendum.lab.server import Lab, open_lab
from addendum.log.events import (
    AssistantMessage,
    CompactionSummary,
    DeveloperMessage,
    Event,
    RequestContext,
    RequestHeader,
    RequestSent,
    Rewind,
    SessionStart,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from addendum.log.headers import log_header, log_prompt, moved_since_request
from addendum.log.session_log import SessionLog
from addendum.log.store import Store
from addendum.log.values import (
    Config,
    DeveloperText,
    Header,
    Projection,
    ToolAddition,
    ToolSchema,
)
from addendum.prompt.blocks import Change, Prompt, Text
from addendum.prompt.projector import Projector, WireFacts
from addendum.stores import MemoryStore
from addendum.tools.functions import FunctionTool
from addendum.tools.history import HistoryFold, ToolHistory, project_tool_updates

CONFIG = Config("anthropic", "claude-opus-5-5", max_tokens=1000)
PARAMETERS = Raw(b'{"type":"object","properties":{"q":{"type":"string"}}}')

BY_VALUE = "anthropic:claude-opus-5-5"
BY_REFERENCE = "anthropic:claude-opus-5-5+by-reference"
ADDITION_ONLY = "anthropic:claude-opus-5-5+addition-only"
DEEPSEEK = "deepseek:deepseek-flash"
PLAIN = "anthropic:claude-sonnet-4-6"
CHAT = "openai-chat:gpt-4.1"

Letter = Literal["N", "A", "H"]
MODES: dict[Letter, Literal["addition-only", "in-history"] | None] = {
    "N": None,
    "A": "addition-only",
    "H": "in-history",
}
_PROJECTIONS: dict[Letter, Projection] = {
    "N": "rebind",
    "A": "addition-only",
    "H": "in-history",
}


# -- tools ----------------------------------------------------------------------------------


def schema(word: str) -> ToolSchema:
    """Return the tool that a word of the notation means."""
    name = word.rstrip("'*")
    changed = word.count("'")
    text = f"Does {name}." if not changed else f"Does {name} in another way ({changed})."
    return ToolSchema(name, text, PARAMETERS, True if word.endswith("*") else None)


def tools(words: str) -> tuple[ToolSchema, ...]:
    """Return the tools of a list such as `a b* c'`."""
    return tuple(schema(word) for word in words.split())


def words(schemas: Sequence[ToolSchema]) -> str:
    """Write tools in the notation; the inverse of `tools`."""
    written: list[str] = []
    for tool in schemas:
        flag = "*" if tool.defer_loading else ""
        written += [
            f"{tool.name}{changed}{flag}"
            for changed in ("", "'", "''", "'''")
            if schema(f"{tool.name}{changed}").description == tool.description
        ]
    return " ".join(written)


def function(tool: ToolSchema | str) -> FunctionTool[..., Any]:
    """Return a tool that says it was called."""
    chosen = schema(tool) if isinstance(tool, str) else tool

    def run(arguments: dict[str, Any]) -> str:
        return f"{chosen.name} was called"

    return FunctionTool.from_schema(chosen, run)


# -- logs without a provider ----------------------------------------------------------------


def context(letter: Letter) -> RequestContext:
    """Return an epoch that tells updates by the mode; the wire plays no part."""
    return RequestContext(
        "anthropic:claude-opus-5-5",
        "anthropic_messages",
        _PROJECTIONS[letter],
        prompt_update=True,
    )


def open_log(name: str = "s1") -> SessionLog:
    """Return a log with an open step 1 of turn 1."""
    log = SessionLog(name, clock=lambda: 7)
    log.append(SessionStart(name))
    log.append(TurnStart(1))
    log.append(StepStart(1, 1))
    return log


class Story:
    """A log written by the loop's own rules, one request a turn, and who follows it.

    Three projectors follow the log from its first request on, one a mode.

    Attributes:
        log: The log; the step of the latest request is open.
    """

    def __init__(self, *requests: str) -> None:
        self.log = SessionLog("s1", clock=lambda: 7)
        self.log.append(SessionStart("s1"))
        self._fresh = True
        self._sent = 0
        self._followers = {letter: Projector(context(letter), WireFacts()) for letter in MODES}
        self._fold = HistoryFold()
        for each in requests:
            self.request(each)

    def request(
        self,
        active: str,
        *,
        series: bool = False,
        message: bool = True,
        beside: str | None = None,
    ) -> Event | None:
        """Log all of a turn up to its request; return its developer message, if there is one.

        Args:
            active: The active tools.
            series: Whether the request starts a series.
            message: Whether the developer message is logged; old logs have none.
            beside: Text to stand in front of the tool blocks.
        """
        self.answer()
        log = self.log
        turn = log.turns + 1
        log.append(TurnStart(turn))
        log.append(StepStart(turn, 1))
        log_prompt(log, "You help.", "", appendable=True, new_series=series)
        log.append(UserMessage(turn, f"question {turn}"))
        header = Header(CONFIG, tools(active))
        before = len(log)
        if not message:
            log.append(RequestHeader(header, "change"))
        elif beside is not None:
            log.append(RequestHeader(header, "change"))
            added = tuple(ToolAddition(tool.name) for tool in header.tools[1:])
            log.append(DeveloperMessage(turn, 1, (DeveloperText(beside), *added), before))
        else:
            log_header(
                log,
                header,
                first=self._fresh,
                series=series or moved_since_request(log),
            )
        self._fresh = False
        self.follow()
        self._sent += 1
        log.append(RequestSent(turn, 1, self._sent, CONFIG.model, 0, log.surface.generation))
        return next((e for e in log.events[before:] if isinstance(e.data, DeveloperMessage)), None)

    def answer(self) -> None:
        """Answer the open request and close its turn, if one is open."""
        log = self.log
        if log.turn is None:
            return
        log.append(
            AssistantMessage(log.turn, 1, CONFIG.model, "anthropic_messages", text=f"re {log.turn}")
        )
        log.append(StepEnd(log.turn, 1))
        log.append(TurnEnd(log.turn))

    def restart(self) -> None:
        """Read the log back, as another process does."""
        self.answer()
        self.log = reloaded(self.log)
        self._fresh = True

    def rewind(self, turns: int = 1) -> None:
        """Cut the last turns from the surface."""
        self.answer()
        starts = [n.seq for n in self.log.surface.nodes if isinstance(n.data, UserMessage)]
        end = self.log.surface.nodes[-1].seq
        self.log.append(Rewind(self.log.turns), replace=(starts[-turns], end))

    def compact(self) -> None:
        """Replace all but the prompt by a summary."""
        self.answer()
        nodes = self.log.surface.nodes
        summary = CompactionSummary("what was said", self.log.turns)
        self.log.append(summary, replace=(nodes[1].seq, nodes[-1].seq))

    def follow(self) -> None:
        """Have all projectors take in the log as it is now."""
        for projector in self._followers.values():
            projector.prompt(self.log)

    # -- what is told -----------------------------------------------------------------------

    @property
    def messages(self) -> list[Event]:
        """The developer messages of the whole log."""
        return [event for event in self.log.events if isinstance(event.data, DeveloperMessage)]

    @property
    def history(self) -> ToolHistory:
        """The fold's snapshot now."""
        return self._fold.read(self.log.events)

    @property
    def active(self) -> tuple[ToolSchema, ...]:
        """Tools of the latest header."""
        header = self.log.header
        return header.header.tools if header else ()

    def told(self, letter: Letter) -> str:
        """Return what a mode tells, in the notation, after checking that all agree.

        The projection itself, a projector that followed the log from its first request, and a
        new one have to give the same declarations and blocks.
        """
        messages, declared = project_tool_updates(
            self.log.surface.nodes, self.active, MODES[letter], self.history
        )
        written = self.written(messages, declared)
        followed = self.prompted(self._followers[letter].prompt(self.log))
        fresh = self.prompted(Projector(context(letter), WireFacts()).prompt(self.log))
        assert (followed, fresh) == (written, written)
        return written

    def written(self, messages: Sequence[Event], declared: Sequence[ToolSchema]) -> str:
        """Write the outcome of a projection in the notation."""
        blocks = [
            (event.seq, block)
            for event in messages
            if isinstance(event.data, DeveloperMessage)
            for block in event.data.content
        ]
        return self._joined(
            declared,
            [
                (
                    seq,
                    repr(block.text)
                    if isinstance(block, DeveloperText)
                    else ("+" if isinstance(block, ToolAddition) else "-") + block.tool_name,
                )
                for seq, block in blocks
            ],
        )

    def prompted(self, prompt: Prompt) -> str:
        """Write what a prompt tells of tools in the notation."""
        places = {event.seq for event in self.messages}
        told: list[tuple[int, str]] = []
        for block in prompt.blocks:
            if isinstance(block, Change):
                told.append((block.key[0], ("+" if block.added else "-") + block.name))
            elif isinstance(block, Text) and block.key[0] in places:
                told.append((block.key[0], repr(block.text)))
        return self._joined(prompt.tools, told)

    def _joined(self, declared: Sequence[ToolSchema], told: Sequence[tuple[int, str]]) -> str:
        numbers = {event.seq: number for number, event in enumerate(self.messages, 1)}
        parts: dict[int, list[str]] = {}
        for seq, text in told:
            parts.setdefault(numbers[seq], []).append(text)
        blocks = ", ".join(" ".join([f"m{n}", *found]) for n, found in parts.items())
        return words(declared) + (f" | {blocks}" if blocks else "")


def reloaded(log: SessionLog) -> SessionLog:
    """Return the log as read back from its stored form."""
    from addendum.log import codec

    return SessionLog.load(log.session, [codec.encode_event(event) for event in log.events])


# -- sessions against the lab ---------------------------------------------------------------


class Talk(Struct, frozen=True):
    """A session that talks to the lab."""

    lab: Lab
    session: Session
    store: Store

    def beside(self, session: Session) -> Talk:
        """Return the same for another session on the same lab."""
        return Talk(self.lab, session, self.store)

    async def stored(self) -> list[bytes]:
        """Return the events as the store has them."""
        return await self.store.read(self.session.id)

    async def say(self, text: str, active: str | None = None) -> list[Event]:
        """Run a turn, with these tools if they are given; return the events it logged."""
        if active is not None:
            await switch(self.session, active)
        before = len(self.session.log)
        await self.session.run(text)
        return list(self.session.log.events[before:])

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Bodies of all requests that arrived, decoded, without cache marks."""
        return [json.loads(body) for body in self.raw]

    @property
    def raw(self) -> list[bytes]:
        """Bodies of all requests that arrived, without cache marks."""
        return [unmarked(capture.body) for capture in self.lab.captures]


async def switch(session: Session, active: str) -> None:
    """Remove and add function tools until these are active."""
    wanted = {tool.name: tool for tool in tools(active)}
    now = {tool.name: tool for tool in session.registry.snapshot().active}
    for name in now.keys() - wanted.keys() - {"tool_search"}:
        await session.tools.remove(name)
    for name, tool in wanted.items():
        if name not in now or now[name].identity() != tool.identity():
            await session.tools.add(function(tool))


@asynccontextmanager
async def talking(
    route: str,
    active: str = "a",
    *,
    script: Script | None = None,
    store: Store | None = None,
    lab: Lab | None = None,
    switches: Switches | None = None,
    name: str = "s1",
    **options: Any,
) -> AsyncGenerator[Talk]:
    """Open a session of an agent with these tools against a lab over real HTTP."""
    if lab is None:
        async with (
            open_lab(script, switches=switches) as own,
            talking(route, active, store=store, lab=own, name=name, **options) as talk,
        ):
            yield talk
        return
    options.setdefault("instructions", "You help.")
    agent = Agent(
        route,
        tools=[function(tool) for tool in tools(active)],
        base_url=lab.base_url(route.split(":")[0]),
        **options,
    )
    kept = store or MemoryStore()
    async with agent.open(name, store=kept) as session:
        yield Talk(lab, session, kept)


def of(events: Sequence[Event], kind: type[Any]) -> list[Event]:
    """Return the events of one type."""
    return [event for event in events if isinstance(event.data, kind)]


def types(events: Sequence[Event], *among: str) -> list[str]:
    """Return the types of events in order, of these types only if any are given."""
    return [event.type for event in events if not among or event.type in among]


def blocks(message: DeveloperMessage) -> str:
    """Write a developer message's blocks: `+b -a`."""
    return " ".join(
        ("+" if isinstance(block, ToolAddition) else "-") + block.tool_name
        for block in message.content
        if not isinstance(block, DeveloperText)
    )


def unmarked(body: bytes) -> bytes:
    """Return a body without cache marks."""
    for mark in (b'{"type":"ephemeral"}', b'{"type":"ephemeral","ttl":"1h"}'):
        body = body.replace(b',"cache_control":' + mark, b"")
    return body


def part(body: bytes, name: str) -> bytes:
    """Return the bytes of one member of a body."""
    return bytes(msgspec.json.decode(body, type=dict[str, Raw])[name])


def extends(earlier: bytes, later: bytes) -> bool:
    """Say whether the messages of a body begin with all bytes of another body's messages."""
    return part(later, "messages").startswith(part(earlier, "messages")[:-1])


def declared(body: dict[str, Any]) -> list[str]:
    """Write the declarations of a body: `a b*`; the placeholder is left out."""
    return [
        tool["name"] + ("*" if tool.get("defer_loading") else "")
        for tool in body.get("tools", [])
        if tool["name"] != "deferred_tools_placeholder"
    ]


def told(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Write the messages of a body as role and what their blocks are: `text`, `+b`."""
    written: list[tuple[str, str]] = []
    for message in body["messages"]:
        kinds: list[str] = []
        for block in message["content"]:
            kind = block["type"]
            if kind in ("tool_addition", "tool_removal"):
                tool = block["tool"].get("definition", block["tool"])
                kind = ("+" if kind == "tool_addition" else "-") + tool["name"]
            kinds.append(kind)
        written.append((message["role"], " ".join(kinds)))
    return written
