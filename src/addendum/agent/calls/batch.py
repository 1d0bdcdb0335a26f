"""The calls of one answer: understood, passed by hooks and approval, run, answered.

Everything behind `understand` sees the real tool and checked arguments. Each call gets exactly one
result, whatever happens to it on the way. Whether one may run is asked of `gate`, and nowhere else:
to know whether a person has to be asked, and once more, the last thing before it is logged.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from addendum import encoding
from addendum.agent.calls.approval import (
    Decisions,
    Pending,
    complete,
    decided,
    denied,
    handled,
    outdated,
    pending,
)
from addendum.agent.calls.execution import Planned, bounded, run_calls
from addendum.agent.calls.gate import STANDING, Scene, judge
from addendum.agent.calls.hooks import (
    HookCall,
    in_front,
    run_after,
    run_batch,
    run_before,
    run_failure,
)
from addendum.agent.calls.outputs import filled
from addendum.agent.calls.progress import Progress
from addendum.agent.calls.repeats import guarded
from addendum.agent.calls.search import search_entry
from addendum.agent.results import StreamEvent, ToolFinished, ToolStarted
from addendum.agent.runtime import Runtime
from addendum.errors import AddendumError
from addendum.log.approvals import (
    AddedContext,
    ApprovalAsked,
    ApprovalDecided,
    AskedCall,
    DecidedCall,
)
from addendum.log.events import AssistantMessage, RequestContext, ToolCall, ToolResult
from addendum.log.reading import doubtful
from addendum.log.values import Call
from addendum.prompt.long_results import tier
from addendum.prompt.wire_facts import SCREENED
from addendum.tools.dispatcher import (
    TOOL_DISPATCHER_NAME,
    Refused,
    Resolved,
    check_arguments,
    resolve_call,
    rewrite_direct_call,
)
from addendum.tools.envelope import MAX_ARGUMENTS
from addendum.tools.functions import ToolContext
from addendum.tools.names import legal_name
from addendum.tools.output_references import Fill
from addendum.tools.registry import Outcome, Snapshot, ToolEntry
from addendum.tools.search import TOOL_SEARCH_NAME
from addendum.wire.answer import Answer
from addendum.wire.apis import wire
from addendum.wire.endings import CUT_CALL
from addendum.wire.reading import legal_object
from addendum.wire.schemas import screened


class Started(Protocol):
    """Calls of an answer that were started while it streamed."""

    def take(self, item: Planned) -> Callable[[], Awaitable[Outcome]] | None:
        """Return what gives the outcome of a call, if it was started early."""
        ...


class Batch:
    """The calls of the open step.

    Args:
        run: The session.
        emit: Told of everything that happens.
        snapshot: The tools that calls are made against.
        context: What the request that is answered was rendered with.
        early: The calls that were started while the answer streamed, if any could be.
    """

    def __init__(
        self,
        run: Runtime,
        emit: Callable[[StreamEvent], None],
        snapshot: Snapshot,
        context: RequestContext,
        early: Started | None = None,
    ) -> None:
        turn, step = run.log.turn, run.log.step
        assert turn is not None and step is not None
        self._run = run
        self._emit = emit
        self._turn, self._step = turn, step
        self._early = early
        self._reports: dict[str, Progress] = {}
        self._fill: Fill | None = None
        if run.setup.output_references:
            # As they are in front of the round: its calls do not refer to each other.
            self._fill = partial(filled, texts=run.state.outputs.texts())
        self._take(snapshot, context)

    def _take(self, snapshot: Snapshot, context: RequestContext) -> None:
        self._snapshot = snapshot
        self._context = context
        self._dispatch = context.projection == "dispatch"
        self._registry = {name: entry.schema for name, entry in snapshot.entries.items()}
        self._bound = (
            self._run.bound_tools(snapshot, context)
            if self._dispatch
            else frozenset(self._registry)
        )
        # It is asked about the others where they are resolved.
        self._asked: frozenset[str] = frozenset()
        if self._run.setup.dispatch.can_dispatch is not None:
            self._asked = frozenset(
                name
                for name, schema in self._registry.items()
                if name in self._bound and self._run.is_deferred(schema)
            )

    # -- real form --------------------------------------------------------------------------

    def understand(self, answer: Answer) -> tuple[list[Planned], AssistantMessage]:
        """Bring every call into its real form before anything else sees it."""
        context, dispatch = self._context, self._dispatch
        planned: list[Planned] = []
        calls: list[Call] = []
        envelopes: dict[str, str] = {}
        as_text = wire(context.wire).facts.string_arguments
        native = answer.native
        for given in answer.calls:
            call = self._own_keys(msgspec.structs.replace(given, name=legal_name(given.name)))
            if call.name != given.name or legal_object(call.arguments) is None:
                # No provider takes such a name back, some take no such arguments, and the history
                # would be refused for good.
                arguments = bytes(legal_object(call.arguments) or b"{}").decode()
                native = wire(context.wire).rewrite(native, {call.id: arguments}, call.name)
            found = self._cut(call) if call.id in answer.cut else None
            found = found or self._resolve(call, fill=self._fill)
            if isinstance(found, Refused):
                # The name of a target may be anything too, and another route sends it as a name.
                target = msgspec.structs.replace(found.call, name=legal_name(found.call.name))
                beside = [
                    each.call
                    for each in planned
                    if each.refused is not None and each.refused.code == found.code
                ]
                failures = self._run.state.failures
                said = guarded(found.message, found.code, target, failures=failures, beside=beside)
                planned.append(Planned(target, refused=Outcome(said, True, found.code)))
                calls.append(target)
            else:
                planned.append(Planned(found.call, self._entry(found.call.name)))
                calls.append(Call(found.call.id, found.call.name, found.given, found.call.origin))
            real = calls[-1]
            if dispatch and real.origin == "direct" and real.name not in self._bound:
                envelopes[call.id] = rewrite_direct_call(real, string_arguments=as_text)
        if envelopes:
            native = wire(context.wire).rewrite(native, envelopes, TOOL_DISPATCHER_NAME)
        return planned, AssistantMessage(
            self._turn,
            self._step,
            context.route,
            context.wire,
            context.form,
            answer.text,
            tuple(calls),
            native,
            () if native is answer.native else answer.native,
            answer.reasoning,
            answer.stop,
            answer.usage,
            msgspec.UNSET if answer.details is None else answer.details,
        )

    def _cut(self, call: Call) -> Refused:
        """Refuse a call whose arguments may not have come whole: nobody knows what it says."""
        dispatched = self._dispatch and call.name == TOOL_DISPATCHER_NAME
        code, message = CUT_CALL
        origin = "dispatched" if dispatched else "direct"
        return Refused(code, message, msgspec.structs.replace(call, origin=origin))

    def _own_keys(self, call: Call) -> Call:
        """Return a call of the model with the tool's own keys, where others were declared."""
        schema = self._registry.get(call.name)
        if schema is None or self._context.rendering < SCREENED:
            return call
        sent = screened(schema, self._run.route.schemas)
        return msgspec.structs.replace(call, arguments=sent.own_arguments(call.arguments))

    def _resolve(self, call: Call, *, fill: Fill | None = None) -> Resolved | Refused:
        run = self._run
        return resolve_call(
            call,
            registry=self._registry,
            bound=self._bound,
            disabled=run.disabled,
            can_dispatch=run.setup.dispatch.can_dispatch,
            search_bound=self._dispatch or TOOL_SEARCH_NAME in self._registry,
            pass_through_bound=run.setup.dispatch.pass_through_bound,
            dispatch=self._dispatch,
            fill=fill,
            asked=self._asked,
        )

    def _check(self, call: Call) -> Resolved | Refused:
        """Check the arguments of a call in real form again, against its tool as it is now."""
        entry = self._scene().entry(call.name)
        assert entry is not None
        return check_arguments(call, entry.schema, search_bound=self._search is not None)

    def _entry(self, name: str) -> ToolEntry:
        return self._snapshot.entries.get(name) or search_entry(self._run)

    # -- the gate ---------------------------------------------------------------------------

    @property
    def _search(self) -> ToolEntry | None:
        return search_entry(self._run) if self._dispatch else None

    def _scene(self, *, late: bool = False) -> Scene:
        """Return how things stand now; late, nobody can be asked any more."""
        run, setup = self._run, self._run.setup
        return Scene(
            entries=run.registry.current().entries,
            search=self._search,
            known=run.log.state.known,
            excluded=run.registry.excluded,
            disabled=run.disabled,
            deferred=run.is_deferred,
            can_dispatch=setup.dispatch.can_dispatch,
            hooks=setup.hooks,
            approval=setup.approval,
            consent=run.state.consent,
            on_redefinition=setup.on_redefinition,
            doubtful=doubtful(run.log),
            late=late,
        )

    def _judged(self, item: Planned, *, late: bool = False) -> Planned:
        """Return a call as the gate leaves it, with its tool as it is now."""
        if item.refused is not None:
            return item
        now = self._scene(late=late)
        verdict = judge(now, item)
        return msgspec.structs.replace(
            item,
            entry=now.entry(item.call.name) or item.entry,
            refused=verdict.refused,
            reason=verdict.asks,
        )

    def harmless(self, call: Call) -> Planned | None:
        """Return a call of the model that may start before its answer has come whole, or None."""
        entry = self._snapshot.entries.get(call.name)
        if entry is None or not entry.hints.read_only or entry.schema.defer_loading:
            return None
        if call.name not in self._bound:
            return None
        found = self._resolve(self._own_keys(call), fill=self._fill)
        if isinstance(found, Refused):
            return None
        # No hook was asked: one that has a say holds it back.
        item = self._judged(Planned(found.call, entry))
        if item.refused is not None or item.reason is not None or item.entry is None:
            return None
        return item if self._scene().read(item.entry).hints.read_only else None

    # -- in front of the tools --------------------------------------------------------------

    async def run(self, planned: Sequence[Planned]) -> tuple[Pending, ...]:
        """Pass the calls by hooks and approval, and run them.

        Returns:
            What a person has to decide first, if nobody could be asked at once; nothing was run.
        """
        run, approval = self._run, self._run.setup.approval
        await self._hear([item.call.name for item in planned if item.refused is None])
        plan = [self._judged(await self._heard(item)) for item in planned]
        if any(item.reason is not None for item in plan):
            plan = [await self._ran(item) for item in plan]
            asked = ApprovalAsked(self._turn, self._step, tuple(_asked(item) for item in plan))
            run.log.append(asked)
            # Durable before anybody is asked: what they answer must have a question.
            await run.flush()
            if approval is None or approval.decide is None:
                return pending(run.log.asked, run.setup.decidable)
            plan = await self._decided(asked, await handled(approval, asked))
        await self._execute(plan)
        return ()

    async def _hear(self, names: Sequence[str]) -> None:
        """Have servers list their tools whose lists were not heard in this process yet.

        What is known of them is from the log or a pin, and may be old; the call would dial anyway.
        """
        run = self._run
        if servers := run.registry.unheard(names):
            # One that cannot even be dialled costs its own calls only, which will say why.
            with contextlib.suppress(AddendumError):
                await run.registry.confirm(servers, run.setup.limits.server_wait)

    async def decide(self, decisions: Decisions) -> None:
        """Go on with the batch that waits.

        Raises:
            ConfigurationError: These are not the decisions that it waits for; it waits still.
        """
        asked = self._run.log.asked
        complete(asked, decisions, self._run.id, self._run.setup.decidable)
        assert asked is not None
        given = {call_id: decided(call_id, each) for call_id, each in decisions.items()}
        await self._execute(await self._decided(asked, given))

    async def _ran(self, item: Planned) -> Planned:
        """Wait for a call that was started early: a wait for a person may outlive this process."""
        outcome = None if self._early is None else self._early.take(item)
        if outcome is None:
            return item
        limit = self._run.setup.limits.result_bytes
        result = bounded(await self._after(item, await outcome()), limit)
        return msgspec.structs.replace(item, refused=result, ran=True)

    async def _heard(self, item: Planned) -> Planned:
        """Return a call as the hooks of now leave it; what they refuse does not run."""
        if item.refused is not None:
            return item
        verdict = judge(self._scene(), item, STANDING)
        if verdict.refused is not None:
            return _answered(item, verdict.refused)
        hooks = in_front(self._run.setup.hooks, item.call.name)
        passed = await run_before(hooks, item.call, self._seen, self._check)
        return msgspec.structs.replace(
            item,
            call=passed.call,
            refused=passed.refused,
            context=passed.context or item.context,
            heard=hooks,
            asks=passed.asks,
        )

    # -- behind a decision ------------------------------------------------------------------

    async def _decided(
        self, asked: ApprovalAsked, decisions: Mapping[str, DecidedCall]
    ) -> list[Planned]:
        """Log what was decided and return what to do, checked against the tools as they are now."""
        run = self._run
        run.log.append(ApprovalDecided(self._turn, self._step, tuple(decisions.values())))
        await run.flush()
        names = {call.name for call in asked.calls if call.refusal is None}
        known = run.registry.snapshot().entries
        servers = {entry.server for name in names if (entry := known.get(name)) and entry.server}
        limits = run.setup.limits
        self._take(await run.registry.confirm(servers, limits.server_wait), self._context)
        return [await self._resumed(call, decisions.get(call.call_id)) for call in asked.calls]

    async def _resumed(self, asked: AskedCall, decision: DecidedCall | None) -> Planned:
        call = Call(asked.call_id, asked.name, asked.arguments, asked.origin)
        known = bool(asked.definition) or asked.refusal is None
        entry = self._entry(call.name) if known else None
        item = Planned(call, entry, context=asked.context, terms=asked.definition)
        if asked.refusal is not None:
            outcome = Outcome(asked.refusal, asked.is_error, asked.code, asked.media)
            return msgspec.structs.replace(_answered(item, outcome), ran=asked.ran)
        if asked.reason is None:
            return await self._shown(item)
        approval = self._run.setup.approval
        if decision is None:
            return _answered(item, denied(""))
        if approval is not None and decision.kind not in approval.kinds:
            return _answered(item, denied(f"a call may not be decided by {decision.kind!r} here"))
        match decision.kind:
            case "approve":
                return await self._shown(msgspec.structs.replace(item, answered=True))
            case "edit":
                return await self._edited(item, decision.arguments or "null")
            case "respond":
                return _answered(item, Outcome(decision.text))
            case "deny":
                return _answered(item, denied(decision.text))
            case _:
                return _answered(item, denied(f"a call cannot be decided by {decision.kind!r}"))

    async def _shown(self, item: Planned) -> Planned:
        """Return a call that waited as the hooks of now leave it: as it was shown, or not at all.

        What they make of it may be what they made of it before the question; then it shows when
        they are asked about the call as the model made it.
        """
        shown = item.call.arguments
        heard = await self._heard(item)
        if heard.refused is None and heard.call.arguments != shown:
            made = self._made(item.call)
            if made is not None:
                heard = await self._heard(msgspec.structs.replace(item, call=made))
        if heard.refused is None and heard.call.arguments != shown:
            why = "would run with other arguments now"
            return _answered(item, outdated(item.call.name, why))
        return heard

    def _made(self, call: Call) -> Call | None:
        """Return a call that waits as the model made it, in real form; None if it is no good."""
        answer = self._run.state.latest.answer
        assert answer is not None
        made = next((each for each in answer.calls if each.id == call.id), None)
        entry = self._scene().entry(call.name)
        if made is None or entry is None:
            return None
        found = check_arguments(made, entry.schema, fill=self._fill)
        return None if isinstance(found, Refused) else found.call

    async def _edited(self, item: Planned, arguments: str) -> Planned:
        """Return a call with a person's arguments; checks and hooks see them like the model's."""
        call = msgspec.structs.replace(item.call, arguments=arguments)
        if self._scene().entry(call.name) is not None:
            found = self._check(call)
            if isinstance(found, Refused):
                return _answered(item, Outcome(found.message, True, found.code))
            call = found.call
        return await self._heard(msgspec.structs.replace(item, call=call, answered=True))

    # -- running ----------------------------------------------------------------------------

    async def _execute(self, plan: Sequence[Planned]) -> None:
        run, log, hooks = self._run, self._run.log, self._run.setup.hooks
        turn, step = self._turn, self._step
        plan = await self._cleared(plan)
        running = {
            item.call.id: outcome
            for item in plan
            if self._early is not None and (outcome := self._early.take(item)) is not None
        }
        fresh = [item for item in plan if item.refused is None and item.call.id not in running]
        # Nothing was waited for since they were judged.
        for item in fresh:
            call = item.call
            log.append(ToolCall(turn, step, call.id, call.name, call.arguments, call.origin))
        await run.flush()
        for item in fresh:
            self._emit(ToolStarted(item.call.id, item.call.name, item.call.arguments))
        outcomes: list[Outcome] = []
        finished: deque[tuple[int, ToolFinished]] = deque()

        def done(place: int, outcome: Outcome) -> None:
            call = plan[place].call
            label, unknown = self._labelled(place, call, outcome)
            logged = log.append(
                ToolResult(
                    turn,
                    step,
                    call.id,
                    call.name,
                    outcome.text,
                    outcome.is_error,
                    outcome.code,
                    outcome.media,
                    tier(outcome.text, run.setup.limits.shown_bytes),
                    label,
                    unknown,
                )
            )
            outcomes.append(outcome)
            if call.id in self._reports:
                self._reports[call.id].close()
            shown = ToolFinished(call.id, call.name, outcome.text, outcome.is_error)
            finished.append((logged.seq, shown))

        async def told() -> None:
            # A store that fails now is told behind the calls: those that run still have effects.
            with contextlib.suppress(AddendumError):
                await run.flush()
            while finished and finished[0][0] < log.durable:
                self._emit(finished.popleft()[1])

        limits = run.setup.limits
        await run_calls(
            plan,
            self.tool_context,
            timeout=limits.tool_timeout,
            limit=limits.result_bytes,
            after=self._after,
            done=done,
            told=told,
            started=lambda item: running.get(item.call.id),
        )
        if finished:
            await run.flush()
            await told()
        for item in plan:
            for text in item.context:
                log.append(AddedContext(turn, step, item.call.name, text))
        if hooks:
            reached = [place for place, item in enumerate(plan) if item.entry is not None]
            await run_batch(
                hooks,
                [self._seen(plan[place].call) for place in reached],
                [outcomes[place] for place in reached],
            )

    async def _cleared(self, plan: Sequence[Planned]) -> list[Planned]:
        """Return the calls as the gate leaves them for the last time; hooks know what it refused.

        They take their time, and what they wait for may change what else may run.
        """
        items, told = list(plan), set[int]()
        while True:
            items = [self._judged(item, late=True) for item in items]
            late = [
                place
                for place, item in enumerate(items)
                if item.refused is not None and place not in told
            ]
            if not late:
                return items
            for place in late:
                items[place] = await self._told(items[place])
            told.update(late)

    def _labelled(
        self, place: int, call: Call, outcome: Outcome
    ) -> tuple[str | None, tuple[str, ...]]:
        """Return the label of a result, and what its call referred to in vain."""
        run = self._run
        if not run.setup.output_references:
            return None, ()
        outputs = self._run.state.outputs
        name = None if outcome.is_error else outputs.next_label(place)
        return name, outputs.unknown(call.id)

    def tool_context(self, call: Call) -> ToolContext:
        """Return what a tool may know of its call."""
        run = self._run
        report = self._reports[call.id] = Progress(call, self._emit)
        return ToolContext(
            session=run.id,
            turn=self._turn,
            step=self._step,
            call_id=call.id,
            tool=call.name,
            state=run.shared,
            report=report,
            host=run.host,
        )

    async def _after(self, item: Planned, outcome: Outcome) -> Outcome:
        """Return what is told of a call that has run."""
        hooks = self._run.setup.hooks
        if not hooks:
            return outcome
        seen = self._seen(item.call)
        outcome = await run_after(hooks, seen, outcome)
        return await run_failure(hooks, seen, outcome) if outcome.is_error else outcome

    async def _told(self, item: Planned) -> Planned:
        """Tell hooks of a call that is not let run."""
        hooks, refused = self._run.setup.hooks, item.refused
        if not hooks or item.entry is None or refused is None or not refused.is_error or item.ran:
            return item
        return _answered(item, await run_failure(hooks, self._seen(item.call), refused))

    def _seen(self, call: Call) -> HookCall:
        entry = self._run.registry.current().entries.get(call.name)
        arguments = encoding.decode(call.arguments or "{}", limit=MAX_ARGUMENTS)
        servers = () if entry is None else entry.servers(arguments)
        return HookCall(
            self._run.id,
            self._turn,
            self._step,
            call.id,
            call.name,
            arguments,
            servers[0] if len(servers) == 1 else None,
            call.origin,
        )


def _answered(item: Planned, outcome: Outcome) -> Planned:
    return msgspec.structs.replace(item, refused=outcome, reason=None)


def _asked(item: Planned) -> AskedCall:
    refused = item.refused
    return AskedCall(
        item.call.id,
        item.call.name,
        item.call.arguments,
        item.call.origin,
        "" if item.entry is None else item.entry.terms,
        item.reason,
        None if refused is None else refused.text,
        None if refused is None else refused.code,
        item.context,
        item.ran,
        refused is None or refused.is_error,
        () if refused is None else refused.media,
    )
