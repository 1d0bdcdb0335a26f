"""What a step writes into the log in front of its request, in its fixed order.

Prompt, user message, server instructions, header and what changed in the tools. The loop writes
it into the session's log; the preview of a switch writes it into a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from addendum.agent.context.epochs import coming
from addendum.agent.context.lifetime import consolidates
from addendum.agent.runtime import Runtime
from addendum.encoding import clean
from addendum.log.events import RequestContext, ServerInstructions, UserMessage
from addendum.log.headers import log_header, log_prompt, moved_since_request, tools_changed
from addendum.log.session_log import SessionLog
from addendum.log.values import Config, Header, ToolSchema
from addendum.tools.history import HistoryFold, declarations
from addendum.tools.registry import Snapshot


class StepInput(Struct, frozen=True):
    """All that decides what a step writes.

    Attributes:
        context: What the coming request renders with.
        config: Its sampling settings.
        active: Tools that are active now.
        head: The agent's own tools, for a session's first header.
        static: Text that is the same in every conversation.
        conversation: Text of this conversation.
        tail: This turn's instructions.
        server_instructions: Text of the servers whose tools are active, by server.
        first: Whether this is the first request since the session was opened.
        series: Whether a series was asked for.
        new_head: Whether a new head was asked for.
        discovered: Names that searches have shown so far.
        history: What the log says of declarations.
    """

    context: RequestContext
    config: Config
    active: tuple[ToolSchema, ...]
    head: tuple[ToolSchema, ...]
    static: str
    conversation: str
    tail: str | None
    server_instructions: Mapping[str, str]
    first: bool
    series: bool
    new_head: bool
    discovered: Collection[str]
    history: HistoryFold


def step_input(run: Runtime, snapshot: Snapshot) -> StepInput:
    """Return all that decides what the coming step writes into a session's log.

    Args:
        run: The session.
        snapshot: Its tools.
    """
    state, context = run.state, coming(run)
    cold = run.setup.consolidate and consolidates(
        run.log, run.route, state.sent.recorded(run.route.name), run.idle()
    )
    return StepInput(
        context=context,
        config=run.config(),
        active=snapshot.active,
        head=run.head,
        static=run.instructions,
        conversation=run.conversation_instructions,
        tail=run.turn_instructions,
        server_instructions=snapshot.instructions,
        first=run.first,
        series=run.series,
        new_head=run.new_head or cold,
        discovered=state.discovered.names if run.registry.searches else frozenset(),
        history=state.history,
    )


def log_step(log: SessionLog, given: StepInput, text: str | None) -> bool:
    """Write a step's events behind its `step/start`.

    Args:
        log: The log, with an open step.
        given: What decides them.
        text: The person's message, on the first step of a turn.

    Returns:
        Whether the header became the session's new head.
    """
    turn, step = log.turn, log.step
    assert turn is not None and step is not None
    header = Header(given.config, given.active)
    new_head = given.new_head or (bool(given.active) and _front_is_lost(log, given))
    series = given.series or new_head or moved_since_request(log)
    rewritten = log_prompt(
        log,
        clean(given.static),
        clean(given.conversation),
        appendable=given.context.prompt_update,
        new_series=series or (given.context.projection == "rebind" and tools_changed(log, header)),
    )
    if text is not None:
        tail = clean(given.tail or "")
        log.append(UserMessage(turn, clean(text), tail if tail.strip() else None))
    if given.server_instructions:
        _log_instructions(log, turn, step, given.server_instructions)
    if log.header is None and given.head != given.active:
        log_header(log, Header(given.config, given.head), first=True, series=False)
        log_header(log, header, first=False, series=False)
    else:
        log_header(
            log,
            header,
            first=given.first,
            series=series or rewritten,
            head=new_head,
            found=lambda: _untold(given),
        )
    return new_head


def _front_is_lost(log: SessionLog, given: StepInput) -> bool:
    """Say whether no tool stands in front on a native route, where additions need one.

    A list that held nothing has no place for a placeholder: the first tools change its front.
    Where removals are left out and the last immediate tool leaves, all others are declared as
    immediate ones and the prefix breaks. From there a series begins, or each later addition would
    do the same.
    """
    context, last, history = given.context, log.header, given.history
    if context.projection not in ("in-history", "addition-only") or last is None:
        return False
    if context.removals == "omit":
        front = {tool.name for tool in history.history.tools if not tool.defer_loading}
        immediate = [tool.name for tool in given.active if not tool.defer_loading]
        return not last.header.tools or (bool(immediate) and front.isdisjoint(immediate))
    if last.header.tools:
        return False
    return not (
        history.head if context.definitions == "by-value" else declarations(history.history)
    )


def _untold(given: StepInput) -> tuple[str, ...]:
    """Return the deferred tools that were found and that the series does not offer yet."""
    deferred = [tool.name for tool in given.active if tool.defer_loading]
    return tuple(
        name for name in deferred if name in given.discovered and name not in given.history.offered
    )


def _log_instructions(log: SessionLog, turn: int, step: int, texts: Mapping[str, str]) -> None:
    """Log what a server says about itself when its tools are first offered."""
    told = {
        (node.data.server, node.data.text)
        for node in log.surface.notes[ServerInstructions]
        if isinstance(node.data, ServerInstructions)
    }
    for server, text in texts.items():
        if (server, text) not in told:
            log.append(ServerInstructions(turn, step, server, text))
