"""Runs the calls of one answer: in parallel, results in the model's order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel
from msgspec import Struct

from addendum.agent.calls.hooks import Hook
from addendum.encoding import clean
from addendum.errors import AddendumError, described
from addendum.log.session_log import OUTCOME_UNKNOWN
from addendum.log.values import Call
from addendum.tools.foreign import is_own
from addendum.tools.functions import ToolContext
from addendum.tools.registry import Outcome, ToolEntry

_NOTE = 200
"""Bytes over the limit that are let be: the note of whoever cut the text on its way here."""


class Planned(Struct, frozen=True):
    """A call in real form, with what runs it or why it is refused.

    Attributes:
        call: The call in real form.
        entry: The tool; None where there is none, or the call was made wrongly.
        refused: What is answered in place of running it, if it does not run.
        reason: Why a person has to be asked first; None if nobody has to.
        context: Texts that hooks add behind the results.
        ran: Whether `refused` is what the call gave: it ran already, and all hooks were told.
        terms: Digest of the terms of the tool that a person was asked about; None if nobody was.
        heard: The hooks in front of the tool that were asked about the call as it is.
        asks: What they want a person to be asked, a line each.
        answered: Whether a person let this very call run.
    """

    call: Call
    entry: ToolEntry | None = None
    refused: Outcome | None = None
    reason: str | None = None
    context: tuple[str, ...] = ()
    ran: bool = False
    terms: str | None = None
    heard: tuple[Hook, ...] = ()
    asks: tuple[str, ...] = ()
    answered: bool = False


async def run_calls(
    planned: Sequence[Planned],
    context: Callable[[Call], ToolContext],
    *,
    timeout: float,
    limit: int,
    after: Callable[[Planned, Outcome], Awaitable[Outcome]],
    done: Callable[[int, Outcome], None],
    told: Callable[[], Awaitable[None]],
    started: Callable[[Planned], Callable[[], Awaitable[Outcome]] | None] = lambda item: None,
) -> None:
    """Run all calls at once; report each result in the model's order.

    When it is cancelled, the results that are there already are reported still, and the others as
    unknown, in the same order: what is known to have happened must not be told as unknown.

    Args:
        planned: The calls.
        context: Makes the context of a call.
        timeout: Seconds a tool may take unless it has a limit of its own.
        limit: Bytes a result may have; what is longer is cut, and says so.
        after: Says what is told of a call that has run, from what it gave.
        done: Told of each result with the call's place, in order, as soon as all before it are
            there.
        told: Called behind that, once for results that come together; a call that still runs goes
            on meanwhile.
        started: Gives what waits for the outcome of a call that runs already; None for others.
    """
    results: dict[int, Outcome] = {}
    next_place = 0

    def report() -> bool:
        nonlocal next_place
        before = next_place
        while next_place in results:
            done(next_place, results.pop(next_place))
            next_place += 1
        return next_place > before

    async def one(place: int, item: Planned) -> None:
        begun = started(item)
        outcome = await (run_one(item, context, timeout) if begun is None else begun())
        results[place] = bounded(await after(item, outcome), limit)
        # What else has ended by now is reported with it.
        await anyio.lowlevel.checkpoint()
        if report():
            await told()

    for place, item in enumerate(planned):
        if item.refused is not None:
            results[place] = bounded(item.refused, limit)
    try:
        if report():
            await told()
        async with anyio.create_task_group() as tasks:
            for place, item in enumerate(planned):
                if item.refused is None:
                    tasks.start_soon(one, place, item)
    except anyio.get_cancelled_exc_class():
        code, text = OUTCOME_UNKNOWN
        for place in range(next_place, len(planned)):
            done(place, results.get(place) or Outcome(text, True, code))
        with anyio.CancelScope(shield=True):
            await told()
        raise
    except ExceptionGroup as group:
        # A call never fails here, only telling its result may: that is one error, not a group.
        raise group.exceptions[0] from None


async def run_one(item: Planned, context: Callable[[Call], ToolContext], timeout: float) -> Outcome:
    """Run one call; whatever goes wrong in it is its outcome.

    Args:
        item: A call that may run.
        context: Makes its context.
        timeout: Seconds it may take unless its tool has a limit of its own.
    """
    assert item.entry is not None
    seconds = item.entry.timeout or timeout
    try:
        return await item.entry.run(
            item.call.arguments.encode() or b"{}", context(item.call), seconds
        )
    except AddendumError as error:
        return Outcome(str(error), True, "TOOL_FAILED")
    except BaseException as error:
        # A tool is foreign code: whatever it raises is its result.
        if not is_own(error):
            raise
        return Outcome(f"{item.call.name} failed: {described(error)}", True, "TOOL_FAILED")


def bounded(outcome: Outcome, limit: int) -> Outcome:
    """Return an outcome that is cut to a limit of bytes, with a note, if it is longer."""
    text = clean(outcome.text)
    data = text.encode()
    if len(data) > limit + _NOTE:
        kept = data[:limit].decode(errors="ignore")
        text = f"{kept}\n[cut: the result had {len(data):,} bytes, {limit:,} are kept]"
    return Outcome(text, outcome.is_error, outcome.code, outcome.media)
