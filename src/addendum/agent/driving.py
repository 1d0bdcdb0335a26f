"""Has a session's log driven: tools and log are where they were, and what runs beside is there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from addendum.agent.calls.discovery import binds_search
from addendum.agent.calls.search import run_search
from addendum.agent.calls.unknown_names import UnknownNames
from addendum.agent.runtime import Runtime
from addendum.agent.setup import AgentSetup
from addendum.errors import SessionBusy, StoreError
from addendum.log.events import ServerInstructions, SessionStart, ToolPolicy
from addendum.log.session_log import SessionLog
from addendum.log.store import Lease, Store
from addendum.stores.leases import RENEW_AFTER_MS
from addendum.tools.mcp.pool import default_pool
from addendum.tools.registry import Registry
from addendum.tools.search import TOOL_SEARCH_NAME
from addendum.wire.transport import Transport


@asynccontextmanager
async def drive(
    setup: AgentSetup, log: SessionLog, store: Store, lease: Lease
) -> AsyncGenerator[Runtime]:
    """Drive the session of a log that was read.

    Args:
        setup: What its agent is set up with.
        log: Its log, as the store has it.
        store: Where it is kept.
        lease: The right to append to it; whoever took it gives it back.
    """
    async with AsyncExitStack() as stack:
        transport = setup.transport
        if transport is None:
            transport = await stack.enter_async_context(Transport())
        registry = Registry(
            setup.tools,
            setup.servers,
            pool=setup.pool or default_pool(),
            store=store,
            pins=setup.pins,
            exclude=_excluded_by(log),
        )
        stack.push_async_callback(registry.aclose)
        run: Runtime | None = None
        try:
            async with _task_group() as tasks:
                tasks.start_soon(_renewed, store, lease)
                run = Runtime(setup, log, registry, transport, store, lease, tasks)
                try:
                    await _begin(run)
                    yield run
                finally:
                    await run.using.close()
                    tasks.cancel_scope.cancel()
        finally:
            # Behind the tasks: a turn that streams has its own end to log first.
            if run is not None:
                with anyio.CancelScope(shield=True):
                    await _end(run)


async def _begin(run: Runtime) -> None:
    """Bring tools and log to where they were, or start them."""
    log, registry, setup = run.log, run.registry, run.setup
    if log.asked is None:
        log.close_open()
    before, by_hand = log.header, run.state.switches
    on = {spec.name: spec.on for spec in setup.servers}
    for name, switched_on in by_hand.servers.items():
        if on.get(name) != switched_on:
            # Behind the others, as when it was switched.
            on.pop(name, None)
            on[name] = switched_on
    if missing := set(setup.disabled) - set(log.disabled):
        log.append(ToolPolicy(tuple(sorted({*log.disabled, *missing}))))
    known, away = log.state.known, log.state.away
    if before is None:
        await registry.start(setup.limits.server_wait)
        if binds_search(setup, registry.snapshot().active):
            registry.bind_search(run_search(run))
        run.head = registry.snapshot().active
        # What was switched before the first request counts, but belongs to no head.
        for name in on:
            if name in registry.server_names:
                await (registry.enable(name) if on[name] else registry.disable(name))
        registry.restore((), (), by_hand.added, by_hand.removed, known=known, away=away)
    else:
        header = before.header
        if any(tool.name == TOOL_SEARCH_NAME for tool in header.tools):
            registry.bind_search(run_search(run))
        servers = [name for name in on if on[name]]
        registry.restore(
            header.tools,
            servers,
            by_hand.added,
            by_hand.removed,
            known=known,
            instructions=_server_instructions(log),
            away=away,
        )
        run.redefinitions.hold()
    run.unknown_names = UnknownNames(setup, log, registry, run.state.history)
    await run.flush()


def _server_instructions(log: SessionLog) -> dict[str, str]:
    """Return what each server said of itself last, wherever the model may see it."""
    events = (event.data for event in log.rare)
    return {data.server: data.text for data in events if isinstance(data, ServerInstructions)}


async def _end(run: Runtime) -> None:
    """Make durable what is not yet, as far as that is possible."""
    if run.log.asked is None:
        run.log.close_open()
    await run.flush()


@asynccontextmanager
async def _task_group() -> AsyncGenerator[TaskGroup]:
    """Open a task group that the body's own error leaves as it is, not in a group of one."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            failure = error
    if failure is not None:
        raise failure


def _excluded_by(log: SessionLog) -> tuple[str, ...]:
    """Return the tools that a session can never use, by its first event."""
    first = log.events[0].data
    return first.excluded if isinstance(first, SessionStart) else ()


async def _renewed(store: Store, lease: Lease) -> None:
    """Renew a lease as long as the session is open, however long a model, tool or person takes."""
    while True:
        await anyio.sleep(RENEW_AFTER_MS / 1000)
        try:
            await store.renew(lease)
        except SessionBusy:
            return  # The next append says so.
        except StoreError:
            continue  # Locked or full: the lease lasts for longer than one attempt.
