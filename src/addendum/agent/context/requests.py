"""Prepares and sends the requests of one session.

One projector and one renderer are kept for each route, so a request's cost follows what is new.
Before a request leaves, it is compared with the last one on its route, and a break that has a
cause in the log is declared.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from addendum.agent.context.firsts import FirstRequests
from addendum.agent.state import State
from addendum.log.events import (
    AssistantMessage,
    CacheBreak,
    Event,
    RequestContext,
    RequestSent,
)
from addendum.log.reading import context_of
from addendum.log.requests import RequestPurpose
from addendum.log.session_log import SessionLog
from addendum.log.values import Config, Usage
from addendum.prompt.announcements import INSTRUCTIONS
from addendum.prompt.blocks import Change, Native, Prompt
from addendum.prompt.breaks import causes, difference, reasoning_floor
from addendum.prompt.projector import REASONING, Projector, WireFacts
from addendum.routes import Route, credentials
from addendum.wire.apis import Renderer, facts, wire
from addendum.wire.transport import (
    ACCEPTED,
    WireRequest,
)


class Sent(Struct):
    """A request as it left, for whoever judges it.

    Attributes:
        number: Requests of the session so far.
        turn: Its turn; 0 before the first.
        session: The session.
        context: What its epoch recorded.
        body: The bytes.
        sent: Seconds since the epoch.
        answered: Seconds since the epoch; None while it is not, or if it failed.
        usage: What the provider reported.
        breaks: Breaks declared before it left.
        purpose: `turn`, `compaction` or `keep-alive`.
    """

    number: int
    turn: int
    session: str
    context: RequestContext
    body: bytes
    sent: float
    breaks: tuple[CacheBreak, ...]
    purpose: str
    answered: float | None = None
    usage: Usage = Usage()


class Ready(Struct, frozen=True):
    """A request that may leave.

    Attributes:
        request: Address, headers and body.
        prompt: What it says.
        breaks: Breaks declared for it.
        number: Its number.
        head: What the first request of a conversation shares with others, where they are watched.
    """

    request: WireRequest
    prompt: Prompt
    breaks: tuple[CacheBreak, ...]
    number: int
    head: str = ""


class _Line:
    """What is kept for one route and context."""

    def __init__(self, route: Route, context: RequestContext, needs: WireFacts) -> None:
        self.context = context
        self.projector = Projector(context, needs)
        make = wire(route.wire).renderer
        self.renderer: Renderer = make(route, context.rendering, context.avoids)
        self.last: tuple[Prompt, Config, int] | None = None


class Requests:
    """The requests of one session.

    Args:
        log: The session's log.
        state: What follows from it.
        clock: Seconds since the epoch.
        firsts: The agent's first requests; whoever sends one has to say when it has ended.
    """

    def __init__(
        self,
        log: SessionLog,
        state: State,
        *,
        clock: Callable[[], float] = time.time,
        firsts: FirstRequests | None = None,
    ) -> None:
        self._log = log
        self._state = state
        self._firsts = firsts
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    # -- epochs -----------------------------------------------------------------------------

    def proven(self, route: Route) -> frozenset[str]:
        """Return the digests of the definitions that the last answered request on a route held."""
        seq = self._state.sent.answered(route.name)
        sent = None if seq is None else self._log.events[seq].data
        if seq is None or not isinstance(sent, RequestSent):
            return frozenset()
        context = context_of(self._log, sent)
        if context is None:
            return frozenset()
        earlier = self._log.until(seq if sent.until is None else sent.until)
        prompt = Projector(context, facts(route)).prompt(earlier)
        held = [*prompt.tools, *(b.definition for b in prompt.blocks if isinstance(b, Change))]
        return frozenset(tool.definition() for tool in held if tool is not None)

    def log_context(self, context: RequestContext) -> None:
        """Log the epoch's context where it differs from the latest one in the log."""
        if self._state.sent.latest != context:
            self._log.append(context)

    # -- preparing --------------------------------------------------------------------------

    def prepare(
        self,
        route: Route,
        context: RequestContext,
        config: Config,
        *,
        purpose: RequestPurpose = "turn",
        until: int | None = None,
    ) -> Ready:
        """Project, compare, declare, render; and log that the request is about to leave.

        Args:
            route: Where it goes.
            context: What its epoch recorded.
            config: Sampling settings.
            purpose: What for; any but a turn's ends with an instruction of ours.
            until: Seq of the first event that it says nothing of; all is said if None.

        Raises:
            UnsupportedContent: The history cannot be said on this route.
            MissingCredential: The route has no key.
        """
        log, instruction = self._log, INSTRUCTIONS.get(purpose)
        line = self._line(route, context)
        prompt = self._project(line, route, instruction, until)
        breaks = self._declare(route, line, prompt, config)
        if any(found.drops_reasoning for found in breaks):
            prompt = self._project(line, route, instruction, until)
        body = line.renderer.body(prompt, config)
        headers = _headers(route, prompt, body)
        seq, _ = self._state.sent.context(route.name)
        head = ""
        if self._firsts is not None and not self._state.sent.number and context.caching:
            head = f"{route.full_name} {route.endpoint.base_url} {prompt.cache_key}"
            if self._firsts.begin(head) and route.cache.kind != "none":
                log.append(CacheBreak("concurrent first requests", route.name, "none"))
                breaks = self._state.sent.ahead(route.name)
        number = self._state.sent.number + 1
        log.append(
            RequestSent(
                log.turn or log.turns,
                log.step or 0,
                number,
                context.route,
                seq,
                log.surface.generation,
                purpose,
                until,
                log.seal.text(),
            )
        )
        if instruction is None or line.last is None:
            # What no turn asked is gone on from only where nothing else was sent.
            line.last = (prompt, config, len(log) - 1)
        return Ready(
            WireRequest(
                route.url,
                headers,
                body,
                " or ".join(route.endpoint.key_variables) or None,
                wire(route.wire).framing,
            ),
            prompt,
            breaks,
            number,
            head,
        )

    def _project(
        self, line: _Line, route: Route, instruction: str | None, until: int | None
    ) -> Prompt:
        floor = self._state.sent.floor(route.name)
        if until is not None:
            earlier = Projector(line.context, facts(route))
            return earlier.prompt(self._log.until(until), instruction=instruction, floor=floor)
        return line.projector.prompt(self._log, instruction=instruction, floor=floor)

    def encoded(self, route: str) -> int:
        """Return how many blocks were encoded for a route so far."""
        return self._lines[route].renderer.encoded

    def _line(self, route: Route, context: RequestContext) -> _Line:
        line = self._lines.get(route.name)
        if line is None or line.context != context:
            last = None if line is None else line.last
            fresh = line is None
            line = self._lines[route.name] = _Line(route, context, facts(route))
            line.last = self._restored(route, line) if fresh else last
        return line

    def _restored(self, route: Route, line: _Line) -> tuple[Prompt, Config, int] | None:
        """Return the last turn's request of a route in the log from before, else the first one."""
        first = self._state.sent.goes_on_from(route.name)
        if first is None or not isinstance(first.data, RequestSent):
            return None
        return self._again(route, line, first, first.data)

    def _again(
        self, route: Route, line: _Line, sent: Event, data: RequestSent
    ) -> tuple[Prompt, Config, int] | None:
        earlier = self._log.until(sent.seq)
        context = context_of(self._log, data)
        header = earlier.header
        if context is None or header is None:
            return None
        floor = reasoning_floor(earlier.rare, route.name)
        # In the same epoch what it said is where the next one goes on from.
        same = context == line.context and data.until is None
        projector = line.projector if same else Projector(context, facts(route))
        said = earlier if data.until is None else earlier.until(data.until)
        instruction = INSTRUCTIONS.get(data.purpose)
        prompt = projector.prompt(said, instruction=instruction, floor=floor)
        return prompt, header.header.config, sent.seq

    def _declare(
        self, route: Route, line: _Line, prompt: Prompt, config: Config
    ) -> tuple[CacheBreak, ...]:
        log = self._log
        declared: list[CacheBreak] = []
        if line.last is None:
            if self._state.sent.number:
                declared.append(CacheBreak("route changed", route.name, "messages"))
        else:
            before, before_config, seq = line.last
            keyed = line.projector.facts.keyed
            found = difference(before, prompt, before_config, config, keyed=keyed)
            why = found and causes(found, log.events[seq:], before, prompt)
            if seq in log.altered:
                # Where it was changed nobody knows: perhaps in front of all reasoning.
                declared.append(
                    CacheBreak(
                        "rendering changed",
                        route.name,
                        "tools",
                        "the stored log was changed",
                        drops_reasoning=line.context.reasoning_bound,
                    )
                )
            elif self._forged_reasoning(route, seq):
                declared.append(
                    CacheBreak(
                        "rendering changed",
                        route.name,
                        "messages",
                        "a stored answer was changed",
                        drops_reasoning=True,
                    )
                )
            elif found and why:
                (reason, detail), *others = why
                if reason == "head changed" and self._expired(route, line.context):
                    reason, detail = "lifetime passed", "consolidated"
                declared.append(
                    CacheBreak(
                        reason,
                        route.name,
                        found.at,
                        detail,
                        found.seq,
                        found.reasoning,
                        tuple(other for other, _ in others if other != reason),
                    )
                )
            elif found is None and self._expired(route, line.context):
                declared.append(CacheBreak("lifetime passed", route.name, "none"))
            elif found is None and self._state.sent.answered_aside(route.name):
                # What was answered last was no turn, and this one does not extend it.
                declared.append(CacheBreak("attempt failed", route.name, "messages", "no turn"))
            elif found is None and self._stripped(route, before, prompt):
                declared.append(CacheBreak("reasoning stripped", route.name, "messages"))
        for found_break in declared:
            log.append(found_break)
        return self._state.sent.ahead(route.name)

    def _forged_reasoning(self, route: Route, seq: int) -> bool:
        """Say whether the answer to the request at `seq` has reasoning and was changed since.

        No provider takes reasoning that is not as it signed it.
        """
        kind = facts(route).kind
        events = self._log.events
        answers = (events[at].data for at in self._log.changed if seq < at < len(events))
        return any(
            isinstance(data, AssistantMessage)
            and data.route == route.name
            and any(kind(raw) in REASONING for raw in data.native)
            for data in answers
        )

    def _stripped(self, route: Route, before: Prompt, after: Prompt) -> bool:
        """Say whether the provider takes reasoning out of the context at this human message."""
        if route.capabilities.keeps_reasoning or before.tail_at == after.tail_at:
            return False
        return any(
            isinstance(block, Native) and (block.kind in REASONING or block.reasons)
            for block in before.blocks[before.tail_at :]
        )

    def _expired(self, route: Route, context: RequestContext) -> bool:
        idle = self._state.sent.idle(route.name, self._clock())
        lifetime = route.cache.lifetime(context.ttl)
        if idle is None or not lifetime or route.cache.kind == "none":
            return False
        return idle > lifetime


def _headers(route: Route, prompt: Prompt, body: bytes) -> tuple[tuple[str, str], ...]:
    api = wire(route.wire)
    headers = [("content-type", "application/json"), ("accept", ACCEPTED[api.framing])]
    headers += route.endpoint.headers
    headers += [(name, secret.reveal()) for name, secret in credentials(route, body=body)]
    if route.cache_key_header and prompt.context.caching:
        headers.append((route.cache_key_header, prompt.cache_key))
    if flags := api.flags(prompt, route.block_betas):
        headers.append((api.flag_header, ",".join(flags)))
    return tuple(headers)
