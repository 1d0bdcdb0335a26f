"""One conversation, as a program sees it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

from addendum.agent.calls.approval import Decisions, Pending, pending
from addendum.agent.calls.tools import SessionTools
from addendum.agent.context.compaction import compact
from addendum.agent.context.keeping import KeepAlive, keep, quote
from addendum.agent.context.requests import Sent
from addendum.agent.context.switch_cost import SwitchCost, switch_cost
from addendum.agent.forking import fork
from addendum.agent.opening import Life, Opening
from addendum.agent.prompts import SessionPrompts
from addendum.agent.results import TurnResult
from addendum.agent.rewinding import cut, last_said, newest, numbered
from addendum.agent.runtime import Runtime
from addendum.agent.setup import AgentSetup
from addendum.agent.streaming import Listener, Nobody, TurnStream
from addendum.agent.turn import Turn
from addendum.checked import AtLeastNone, check_value, checks_arguments
from addendum.errors import ConfigurationError
from addendum.log.session_log import SessionLog
from addendum.log.values import Usage
from addendum.routes import Route
from addendum.tools.history import ToolHistory
from addendum.tools.registry import Registry


class Session:
    """A conversation that can be driven. Made by `Agent.open`.

    Attributes:
        id: Its id.
        agent: What its agent is set up with.
        log: Its log; to be read, not to be appended to.
        tools: Switches.
        prompts: Prompts of MCP servers, to be sent as messages.
        state: Free for tools, through `ToolContext.state`.
        sent: Requests as they left, if the agent records them.
    """

    def __init__(self, run: Runtime, life: Life[Session] | None = None) -> None:
        self._run = run
        self._life = life
        run.host = self
        self.id = run.id
        self.agent: AgentSetup = run.setup
        self.log: SessionLog = run.log
        self.tools = SessionTools(run)
        self.prompts = SessionPrompts(run)
        self.state: dict[str, Any] = run.shared
        self.sent: list[Sent] = run.captured

    @property
    def route(self) -> Route:
        """Where the next request goes."""
        return self._run.route

    @property
    def registry(self) -> Registry:
        """The tools that there are now, and their servers; to be read."""
        return self._run.registry

    @property
    def disabled(self) -> tuple[str, ...]:
        """Names that stay bound and are refused: here, or in the session that opened this one."""
        return self._run.disabled

    @property
    def instructions(self) -> str:
        """Static text; the agent's unless set."""
        return self._run.instructions

    @instructions.setter
    def instructions(self, text: str) -> None:
        check_value("Session", "instructions", text, str)
        self._run.instructions = text

    @property
    def conversation_instructions(self) -> str:
        """Text of this conversation; the agent's unless set."""
        return self._run.conversation_instructions

    @conversation_instructions.setter
    def conversation_instructions(self, text: str) -> None:
        check_value("Session", "conversation_instructions", text, str)
        self._run.conversation_instructions = text

    @property
    def turn_instructions(self) -> str | None:
        """Text for the next turns; the agent's unless set."""
        return self._run.turn_instructions

    @turn_instructions.setter
    def turn_instructions(self, text: str | None) -> None:
        check_value("Session", "turn_instructions", text, str | None)
        self._run.turn_instructions = text

    async def aclose(self) -> None:
        """Close the session, from any task; a turn that runs in it is cancelled.

        Whoever opened it with `async with` need not. Once more it does nothing.

        Raises:
            StoreError: Something could not be made durable.
        """
        if self._life is not None:
            await self._life.close()

    # -- turns ------------------------------------------------------------------------------

    @checks_arguments
    async def run(self, text: str) -> TurnResult:
        """Run one turn to its end, or until a person has to decide calls (`waiting`).

        Args:
            text: What the person wrote.

        Raises:
            ConfigurationError: The text says nothing, or a turn runs or waits for decisions.
            ProviderError: The provider refused or failed; the session stays usable.
            LimitReached: A limit of the agent ended the turn.
        """
        return await self._turn(text, Nobody())

    @checks_arguments
    def stream(self, text: str) -> TurnStream:
        """Run one turn and give its events as they happen; the last is `TurnDone`.

        Leaving the loop early cancels the turn and leaves a valid log; `TurnStream` says when.

        Args:
            text: What the person wrote.

        Raises:
            ConfigurationError: As `run`.
            ProviderError: As `run`.
            LimitReached: As `run`.
        """
        return TurnStream(self._run.using.free, lambda listener: self._turn(text, listener))

    def pending(self) -> tuple[Pending, ...]:
        """Return the calls that a person has to decide before the turn goes on."""
        return pending(self.log.asked, self.agent.decidable)

    @checks_arguments
    async def decide(self, decisions: Decisions) -> TurnResult:
        """Decide the calls that wait, and go on with their turn to its end, or to the next wait.

        Args:
            decisions: By call id, one for each call of `pending()`.

        Raises:
            ConfigurationError: These are not the calls that wait; they wait still.
            AddendumError: As `run`.
        """
        return await self._decide(decisions, Nobody())

    @checks_arguments
    def stream_decide(self, decisions: Decisions) -> TurnStream:
        """As `decide`, and give the turn's events as `stream` does.

        Args:
            decisions: By call id, one for each call of `pending()`.

        Raises:
            AddendumError: As `decide`.
        """
        return TurnStream(self._run.using.free, lambda listener: self._decide(decisions, listener))

    async def _turn(self, text: str, listener: Listener) -> TurnResult:
        async with self._run.using.alone(listener):
            return await Turn(self._run, listener.tell).run(text)

    async def _decide(self, decisions: Decisions, listener: Listener) -> TurnResult:
        async with self._run.using.alone(listener, deciding=True):
            return await Turn(self._run, listener.tell).resume(decisions)

    def tool_history(self) -> ToolHistory:
        """Return the declarations of the current request series and its updates (A5)."""
        return self._run.state.history.history

    @checks_arguments
    def use(self, route: str | Route) -> None:
        """Go on with another route from the next request on; nothing in the log is rewritten."""
        self._run.use(route)

    # -- the log ----------------------------------------------------------------------------

    @checks_arguments
    async def rewind(self, turns: int = 1) -> int:
        """Cut the last turns from what the model sees; the log keeps them.

        Args:
            turns: How many.

        Returns:
            The seq of the event.

        Raises:
            ConfigurationError: There are not so many.
        """
        async with self._run.using.alone():
            seq = cut(self.log, newest(self.log, turns))
            await self._run.flush()
            return seq

    @checks_arguments
    async def edit(self, turn: int, text: str) -> TurnResult:
        """Say a message otherwise: cut its turn and all behind it, and run the new text.

        Args:
            turn: The turn whose message is replaced.
            text: What the person writes now.

        Raises:
            ConfigurationError: The model does not see this turn, or as `run`; nothing is cut.
            AddendumError: As `run`; the old turns stay cut.
        """
        return await self._again(turn, text, "edit", Nobody())

    async def retry(self) -> TurnResult:
        """Ask the last message again: cut its turn, however it ended, and run it anew.

        Raises:
            ConfigurationError: There is no turn, or as `run`; nothing is cut.
            AddendumError: As `run`; the old turn stays cut.
        """
        last = last_said(self.log, self._run.state.latest)
        return await self._again(last.turn, last.text, "retry", Nobody())

    @checks_arguments
    def stream_again(self, turn: int, text: str | None = None) -> TurnStream:
        """As `edit`, or as `retry` of any turn if `text` is None; gives events as `stream` does."""
        first = numbered(self.log, turn)
        said, reason = (first.text, "retry") if text is None else (text, "edit")
        return TurnStream(
            self._run.using.free, lambda listener: self._again(turn, said, reason, listener)
        )

    async def _again(
        self,
        turn: int,
        text: str,
        reason: Literal["edit", "retry"],
        listener: Listener,
    ) -> TurnResult:
        async with self._run.using.alone(listener):
            again, first = Turn(self._run, listener.tell), numbered(self.log, turn)
            again.check(text)
            cut(self.log, first, reason)
            return await again.run(text)

    @checks_arguments
    async def compact(
        self, summary: str | None = None, *, keep_turns: AtLeastNone | None = None
    ) -> str:
        """Replace the conversation so far by a summary.

        Args:
            summary: The summary; the model is asked for one if None. If that fails, the session
                stays as it was, and the log says why.
            keep_turns: How many of the newest turns stay as they are; None is what the agent's
                `compaction` says, else none.

        Returns:
            The summary.

        Raises:
            ConfigurationError: There is nothing to compact, or what came is no summary.
            ProviderError: The request for the summary failed.
        """
        if keep_turns is None:
            own = self.agent.compaction
            keep_turns = 0 if own is None else own.keep_turns
        async with self._run.using.alone():
            return await compact(self._run, summary, keep_turns)

    @checks_arguments
    def result(self, call_id: str) -> str:
        """Return the whole text of a call's result, however little of it the model was shown.

        Args:
            call_id: The call's id; the latest counts where ids repeat.

        Raises:
            ConfigurationError: No call with this id has a result.
        """
        result = self._run.state.results.by_call.get(call_id)
        if result is None:
            raise ConfigurationError(f"no call {call_id!r} has a result here", session=self.id)
        return result.text

    def switch_cost(self) -> SwitchCost:
        """Return what the switches since the last request cost at the next one.

        No turn may run; `addendum tools ID --what-if` asks of switches that nobody made.
        """
        return switch_cost(self._run)

    def keep_alive_price(self) -> KeepAlive:
        """Return what keeping the cache takes: tokens, money, and when the next request is due.

        Raises:
            ConfigurationError: There is nothing to keep, or no lifetime is known.
        """
        return quote(self._run)

    async def keep_alive(self) -> Usage:
        """Send one request that keeps the cache for another lifetime; return what it cost.

        Raises:
            ConfigurationError: As `keep_alive_price`, or a turn runs.
            ProviderError: The request failed.
        """
        async with self._run.using.alone():
            return await keep(self._run)

    def start_series(self) -> None:
        """Have the next request start a series of its own; a declared break."""
        self._run.series = True

    def rehead(self) -> None:
        """Make what is active at the next request the session's new head; a declared break."""
        self._run.new_head = True

    @checks_arguments
    def fork(self, session_id: str | None = None, *, turn: int | None = None) -> Opening[Session]:
        """Open a child that shares all so far, or up to a turn's end, and then goes its own way.

        It has its parent's tools, switches, route and texts; a function that was added by hand runs
        in it too. With `turn`, it has the tools and switches of that time.

        Args:
            session_id: The child's id; a random one if None.
            turn: The last turn that it has, also one that was cut or summed up since, and the
                switches behind it; everything if None.

        Raises:
            ConfigurationError: There was no such turn, or there is a session with this id.
            StoreError: It could not be written; there is no child.
        """
        return Opening(lambda life: _forked(self._run, life, session_id, turn))


@asynccontextmanager
async def _forked(
    parent: Runtime, life: Life[Session], session_id: str | None, turn: int | None
) -> AsyncGenerator[Session]:
    async with fork(parent, session_id, turn) as child:
        yield Session(child, life)


def runtime_of(session: Session) -> Runtime:
    """Return what a session works with, for what is built on it; no part of the public names."""
    return session._run  # pyright: ignore[reportPrivateUsage]
