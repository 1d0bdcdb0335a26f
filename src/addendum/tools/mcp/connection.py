"""A connection to an MCP server that outlives its breaks, kept by one owner task.

Only tasks of the owner's group touch the SDK, whose scopes belong to a task; a caller's task leaves
a call there and waits. The owner dials when the server is first needed, follows its list, and dials
again, with growing pauses, when the connection breaks. What it publishes is a `ServerState`, and
only settled lists: a list that is equal, or empty for a moment while a server comes back, changes
nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread
import msgspec

from addendum.encoding import decode
from addendum.errors import ContentError
from addendum.lines import one_line
from addendum.masking import masked
from addendum.tools.mcp.patience import Job, Patience
from addendum.tools.mcp.values import (
    CallOutcome,
    Listing,
    RemoteTool,
    ServerSpec,
    ServerState,
    Timings,
    changed_outcome,
    lost_outcome,
    merge,
)

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from addendum.tools.mcp.link import Link, Report

T = TypeVar("T")

logger = logging.getLogger("addendum.mcp")

_HANDSHAKE_FIRST: set[str] = set()
"""Keys of servers that only stood once the classic greeting came first, in this process."""

_PATIENCE = 2.0
"""Seconds: a list is taken as settled after this, even if notices of change never pause."""


class _Live:
    """What exists only while a connection stands."""

    def __init__(self, link: Link, tasks: TaskGroup) -> None:
        self.link = link
        self.tasks = tasks
        self.probing = False
        self.over = False


class Connection:
    """One server, shared by all who acquired it.

    Attributes:
        spec: The spec it was first acquired with.
        state: What is known of the server now; a frozen value, replaced by the owner task.
        users: How many acquired it and did not release it yet.
    """

    def __init__(self, spec: ServerSpec, timings: Timings) -> None:
        self.spec = spec
        self.state = ServerState()
        self.users = 0
        self._timings = timings
        self._subscribers: dict[object, Callable[[ServerState], None]] = {}
        self._bell = anyio.Event()
        self._scope = anyio.CancelScope()
        self._owner: asyncio.Task[None] | None = None
        self._live: _Live | None = None
        self._dialling = False
        self._demanded = False
        self._failures = 0
        self._changes = 0
        self._closing = False
        self._tail = ""
        self._own_words: set[str] = set()

    @property
    def last_words(self) -> str:
        """The last 4 KiB that a child process wrote to stderr; secrets of the spec replaced."""
        live = self._live
        return self._tail if live is None else self._words(live.link)

    @property
    def pid(self) -> int | None:
        """Process id of a server on stdio while its connection stands."""
        return None if self._live is None else self._live.link.peer.pid

    def subscribe(self, callback: Callable[[ServerState], None]) -> Callable[[], None]:
        """Have `callback` called with each new state, in the event loop.

        Returns:
            A function that ends it.
        """
        token = object()
        self._subscribers[token] = callback

        def end() -> None:
            self._subscribers.pop(token, None)

        return end

    async def until(self, holds: Callable[[ServerState], bool], timeout: float) -> ServerState:
        """Wait until `holds(state)` or `timeout` seconds have passed; return the state then."""
        with anyio.move_on_after(timeout):
            while not holds(self.state):
                await self._bell.wait()
        return self.state

    async def ready(self, timeout: float) -> ServerState:
        """Dial if need be, and wait until the server's list has settled or the attempt failed.

        Args:
            timeout: Seconds to wait at most. A server that comes later joins later.

        Returns:
            The state: `ready`, or why not.
        """
        with anyio.move_on_after(timeout):
            await self._reach()
        return self.state

    async def call(
        self,
        tool: str,
        arguments: bytes,
        *,
        timeout: float,
        report: Report | None = None,
        same: Callable[[RemoteTool], bool] | None = None,
    ) -> CallOutcome:
        """Call one of the server's tools.

        Args:
            tool: The server's own name for the tool.
            arguments: JSON text of an object.
            timeout: Seconds until the answer must be there; each report of progress begins them
                anew, up to `PROGRESS_FACTOR` times as many in all.
            report: Told of the call's progress.
            same: Whether the tool as it is listed when the server is reached is the one that is
                meant. Without it, or where the list does not have the tool, the server decides.

        Returns:
            The server's answer, or an error that says what went wrong.
        """
        try:
            parsed = decode(arguments)
            if not isinstance(parsed, dict):
                raise ContentError("not an object")
        except ContentError as error:
            return CallOutcome(
                f"the arguments are no JSON object: {error}", True, "invalid_arguments"
            )
        given = cast("dict[str, Any]", parsed)

        patience = Patience(timeout)

        def heard(progress: float, total: float | None, message: str | None) -> None:
            patience.renew()
            if report is not None:
                report(progress, total, message)

        async def work(link: Link) -> CallOutcome:
            listed = next((each for each in self.state.tools if each.name == tool), None)
            if same is not None and listed is not None and not same(listed):
                return changed_outcome(self.spec.name, tool)
            return await link.call(tool, given, heard)

        return await self.ask(work, timeout, patience)

    async def ask(
        self,
        work: Callable[[Link], Awaitable[T | CallOutcome]],
        timeout: float,
        patience: Patience | None = None,
    ) -> T | CallOutcome:
        """Ask the server something.

        A server that is still starting is waited for; one that is away gets one attempt at once,
        and if that fails the answer is an error. One that no longer knows us is dialled anew,
        once, and asked again. Cancelling cancels at the server.

        Args:
            work: Asks, in the owner's group.
            timeout: Seconds until the answer must be there.
            patience: How long it is waited for, if `work` can renew it.

        Returns:
            What `work` returns, or what is told of the failure.
        """
        patience = patience or Patience(timeout)
        first: CallOutcome | None = None
        while True:
            live = await self._stood(timeout, patience.deadline)
            if live is None:
                return self._unreachable(first)
            if first is None:
                answer = await self._put(live, work, patience)
                if not isinstance(answer, CallOutcome) or not answer.anew:
                    return answer
                first = answer
                continue
            live.link.again.add(first.anew)
            try:
                return await self._put(live, work, patience)
            finally:
                live.link.again.discard(first.anew)

    async def _stood(self, timeout: float, deadline: float) -> _Live | None:
        """Return the standing connection; one that is away is waited for a short time only."""
        starting = self.state.status in ("idle", "starting")
        patience = timeout if starting else min(timeout, self._timings.demand)
        with anyio.move_on_at(min(deadline, anyio.current_time() + patience)):
            return await self._reach()
        return None

    def _unreachable(self, first: CallOutcome | None) -> CallOutcome:
        why = self.state.error or "it has not answered yet"
        if self._closing:
            why = "its connection was closed"
        if first is None:
            return CallOutcome(
                f"server {self.spec.name} is not reachable; its tools work again when it is back "
                f"({why})",
                True,
                "unreachable",
            )
        # What refused the call often refuses a new connection in the same words.
        if first.text.endswith(why):
            return first
        return msgspec.structs.replace(
            first, text=f"{first.text}; a new connection could not be made ({why})"
        )

    async def _put(
        self,
        live: _Live,
        work: Callable[[Link], Awaitable[T | CallOutcome]],
        patience: Patience,
    ) -> T | CallOutcome:
        """Ask on a connection that stands."""
        name = self.spec.name
        job = Job(work)
        live.tasks.start_soon(_perform, live.link, job)
        try:
            # Not left to the SDK: it would wait without end to write to a process that hangs.
            await patience.wait(job.done)
        finally:
            if not job.done.is_set():
                job.scope.cancel()
        if live.link.lost.is_set() and not live.over:
            # At once: what is asked next must not go there again.
            self._end(live, live.link.why())
        if job.outcome is not None:
            return job.outcome
        if job.done.is_set():
            return lost_outcome(name)
        if not live.over:
            live.tasks.start_soon(self._probe, live)
        return CallOutcome(
            f"server {name} did not answer within {patience}; the call was cancelled and may or "
            "may not have taken effect",
            True,
            "timeout",
        )

    async def _reach(self) -> _Live | None:
        """Return the standing connection, after one attempt if need be; None if that failed."""
        if self._owner is None and not self._closing:
            self._dialling = True
            # A context of its own: the owner outlives whoever dialled first, and must not carry
            # that caller's variables (trace ids, request data) into everybody's calls.
            self._owner = asyncio.get_running_loop().create_task(
                self._own(), name=f"mcp:{self.spec.name}", context=contextvars.Context()
            )
        if self._live is None and not self._dialling:
            self._demanded = True
            self._ring()
        failures = self._failures
        while self._live is None and self._failures == failures and not self._closing:
            await self._bell.wait()
        return self._live

    def close(self) -> None:
        """Begin to end the connection for good; running calls are answered as lost."""
        self._closing = True
        if self._live is None:
            self._scope.cancel()
        self._ring()

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended and its process is gone."""
        return self._closing and (self._owner is None or self._owner.done())

    async def closed(self) -> None:
        """Wait until the connection has ended and its process is gone."""
        if self._owner is not None:
            await asyncio.wait({self._owner})

    # What follows runs in the owner task and its group.

    def _ring(self) -> None:
        bell, self._bell = self._bell, anyio.Event()
        bell.set()

    def _words(self, link: Link) -> str:
        return self.spec.redact(link.peer.tail.decode(errors="replace"))

    def _publish(self, **changes: Any) -> None:
        state = msgspec.structs.replace(self.state, **changes)
        if state == self.state:
            return
        self.state = state
        self._ring()
        for callback in tuple(self._subscribers.values()):
            try:
                callback(state)
            except Exception:
                logger.exception("a subscriber of server %s failed", masked(self.spec.name))

    async def _own(self) -> None:
        pause = self._timings.first_pause
        try:
            with self._scope:
                self._publish(status="starting")
                while not self._closing:
                    self._dialling, self._demanded = True, False
                    began = anyio.current_time()
                    error = await self._connect_once()
                    if self._closing:
                        return
                    not_before = anyio.current_time()
                    if self._dialling:
                        self._dialling = False
                        self._failures += 1
                        not_before += self._timings.first_pause
                    elif not_before - began > self._timings.stable:
                        pause = self._timings.first_pause
                    logger.info("server %s: %s", masked(self.spec.name), error)
                    self._away(error)
                    with anyio.move_on_after(pause):
                        while not self._demanded:
                            await self._bell.wait()
                    # Also where calls ask for it: many calls must not make a storm of attempts.
                    await anyio.sleep_until(not_before)
                    pause = min(pause * 2, self._timings.longest_pause)
        finally:
            self._dialling, self._closing = False, True
            self._publish(status="idle", error=None)
            self._ring()

    def _away(self, error: str) -> None:
        self._publish(status="lost" if self.state.revision else "failed", error=error)
        self._ring()

    async def _connect_once(self) -> str:
        """Hold one connection from its beginning to its end; return why it ended."""
        try:
            # In a thread: the first import of the SDK takes about a second.
            linking = await anyio.to_thread.run_sync(
                importlib.import_module, "addendum.tools.mcp.opening"
            )
        except ImportError as error:
            return one_line(f"the MCP SDK cannot be imported: {error}")
        key = self.spec.key()
        error, link = await self._attempt(linking, handshake_first=key in _HANDSHAKE_FIRST)
        if link.asked and link.broke_off and not self._closing:
            # At once, and not as a failure: it may only have taken our first question badly.
            error, link = await self._attempt(linking, handshake_first=True)
            if link.stood:
                _HANDSHAKE_FIRST.add(key)
        return error

    async def _attempt(self, linking: Any, *, handshake_first: bool) -> tuple[str, Link]:
        link: Link = linking.Link(self.spec, self._note_change, self._own_words)
        try:
            async with linking.open_link(
                link,
                self.spec,
                grace=self._timings.grace,
                within=self._timings.connect,
                handshake_first=handshake_first,
            ):
                link.stood = True
                await self._stand(link)
            # Told after the end: by then a child's last words have been read.
            return link.why(), link
        except Exception as error:
            # Its streams only tell that they end.
            return link.reason(link.peer.fault or error), link
        finally:
            self._tail = self._words(link)

    async def _stand(self, link: Link) -> None:
        async with anyio.create_task_group() as tasks:
            live = _Live(link, tasks)
            try:
                tasks.start_soon(link.follow, self._timings.first_pause)
                tasks.start_soon(self._keep_list, live)
                tasks.start_soon(self._watch, live)
                while not self._closing and not live.over:
                    await self._bell.wait()
            finally:
                live.over = True
                self._live = None
                tasks.cancel_scope.cancel()

    async def _watch(self, live: _Live) -> None:
        await live.link.lost.wait()
        self._end(live, live.link.why())

    def _end(self, live: _Live, error: str) -> None:
        live.over = True
        if self._live is live:
            self._live, self._tail = None, self._words(live.link)
            self._away(error)
        self._ring()

    async def _probe(self, live: _Live) -> None:
        """End a connection that shows no sign of life, so that the next one can work."""
        if live.probing:
            return
        live.probing = True
        answered = anyio.Event()

        async def ask() -> None:
            if await live.link.alive():
                answered.set()

        # Asked in a task of its own: to a process that reads no more even the question gets stuck,
        # and taking it back as well.
        live.tasks.start_soon(ask)
        with anyio.move_on_after(self._timings.probe):
            await answered.wait()
        live.probing = False
        if not answered.is_set():
            live.link.peer.kill()
            self._end(live, "it no longer answers")

    def _note_change(self) -> None:
        self._changes += 1
        self._ring()

    async def _changed(self, seen: int) -> None:
        while self._changes == seen:
            await self._bell.wait()

    def _enter(self, live: _Live) -> None:
        """Open the connection for calls."""
        if self._live is None and not live.over:
            self._live = live
            self._dialling = False
            self._ring()

    async def _keep_list(self, live: _Live) -> None:
        pause = self._timings.first_pause
        fresh = True
        while True:
            seen = self._changes
            try:
                listing, seen = await self._settled(live, fresh)
            except Exception as error:
                if live.link.lost.is_set():
                    return
                # A broken connection shows here first, and is no fault of the list: it ends this
                # task in the meantime.
                await anyio.sleep(self._timings.quiet)
                known = self.state.revision > 0
                reason = f"its list of tools cannot be used: {live.link.reason(error)}"
                self._publish(status="ready" if known else "failed", error=reason)
                self._enter(live)
                if isinstance(error, TimeoutError):
                    live.tasks.start_soon(self._probe, live)
                with anyio.move_on_after(pause):
                    await self._changed(seen)
                pause = min(pause * 2, self._timings.longest_pause)
            else:
                self._settle(listing)
                self._enter(live)
                fresh, pause = False, self._timings.first_pause
                await self._changed(seen)
                await anyio.sleep(self._timings.quiet)

    async def _settled(self, live: _Live, fresh: bool) -> tuple[Listing, int]:
        """Read lists until one stands still; return it and the count of changes it is up to."""
        began = anyio.current_time()
        doubted: Listing | None = None
        sure_at = 0.0
        while True:
            seen = self._changes
            with anyio.fail_after(self._timings.fetch):
                listing = await live.link.fetch()
            now = anyio.current_time()
            if self._changes != seen and now - began < _PATIENCE:
                await anyio.sleep(self._timings.quiet)
                continue
            if not self._doubtful(listing, fresh):
                return listing, seen
            if doubted is None or not listing.same_as(doubted.tools, doubted.instructions):
                doubted, sure_at = listing, now + self._timings.confirm
            elif now >= sure_at:
                return listing, seen
            # The connection stands, so calls go on while the list is in doubt.
            self._publish(status="ready", error=None)
            self._enter(live)
            with anyio.move_on_at(sure_at):
                await self._changed(seen)
                await anyio.sleep(self._timings.quiet)

    def _doubtful(self, listing: Listing, fresh: bool) -> bool:
        """Return whether a list looks like a server that is not all there yet.

        Servers that come back often list nothing, or only a part, until they have started up.
        """
        old = {tool.name for tool in self.state.tools}
        new = {tool.name for tool in listing.tools}
        return bool(old) and (not new or (fresh and not old <= new))

    def _settle(self, listing: Listing) -> None:
        old = self.state
        same = old.revision > 0 and listing.same_as(old.tools, old.instructions)
        self._publish(
            status="ready",
            tools=old.tools if same else merge(old.tools, listing.tools),
            instructions=listing.instructions,
            error=None,
            notes=listing.notes,
            revision=old.revision if same else old.revision + 1,
        )


async def _perform(link: Link, job: Job[Any]) -> None:
    try:
        with job.scope:
            job.outcome = await job.work(link)
    finally:
        job.done.set()
