"""Hooks around tool calls: the application's own code that sees every call in its real form.

    def no_force(call: HookCall) -> Deny | None:
        return Deny("never with force") if call.arguments.get("force") else None

    Agent(..., hooks=[Hook("git__push", before=no_force)])

A hook is matched on the real name: the dispatcher's name never reaches one. Hooks run in their
order, each with what the earlier ones made of the call; a denial ends it. Whatever goes wrong in a
hook counts against the call: in front of the tool it does not run, behind it its result is
withheld.

Where a person is asked, the hooks in front of a call run twice: before the question, since it shows
what they make of the call, and again behind the answer, which may come days later: what they say
then counts. A call that was approved runs with the arguments that were shown, or not at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from addendum import encoding, errors
from addendum.allowed import shown
from addendum.checked import Word, check_fields
from addendum.errors import ConfigurationError, ContentError
from addendum.lines import shortened
from addendum.log.values import Call
from addendum.tools.dispatcher import Refused, Resolved
from addendum.tools.foreign import is_own
from addendum.tools.registry import Outcome

MAX_CONTEXT = 64 * 1024
"""Characters of text that one hook may add; more counts as a fault of the hook."""

_SAID = 300

T = TypeVar("T")
Maybe: TypeAlias = T | Awaitable[T]
"""What a plain function returns, or a coroutine function."""


class HookCall(Struct, frozen=True):
    """A call as hooks see it.

    Attributes:
        session: Id of the session.
        turn: Number of the turn.
        step: Number of the step in it.
        id: The model's call id.
        name: The real tool.
        arguments: What it will run with; a copy, changed by `Change` only.
        server: The MCP server that the tool comes from, or that a resource is read of, if any.
        origin: `direct`, or `dispatched` if it came through the dispatcher.
    """

    session: str
    turn: int
    step: int
    id: str
    name: str
    arguments: dict[str, Any]
    server: str | None = None
    origin: Literal["direct", "dispatched"] = "direct"

    def __post_init__(self) -> None:
        check_fields(self)


class Deny(Struct, frozen=True):
    """The tool does not run; the model reads why."""

    reason: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


class Ask(Struct, frozen=True):
    """A person is asked; without anybody to ask, the tool does not run."""

    reason: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


class Change(Struct, frozen=True):
    """The tool runs with other arguments, if they fit its schema. The target stays."""

    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_fields(self)


class AddContext(Struct, frozen=True):
    """Text that the model reads behind the results of the round, as data."""

    text: str

    def __post_init__(self) -> None:
        check_fields(self)


class Replace(Struct, frozen=True):
    """The model reads this in place of the result's text."""

    text: str

    def __post_init__(self) -> None:
        check_fields(self)


Before: TypeAlias = Callable[[HookCall], Maybe[Deny | Ask | Change | AddContext | None]]
After: TypeAlias = Callable[[HookCall, Outcome], Maybe[Replace | None]]
Failure: TypeAlias = Callable[[HookCall, Outcome], Maybe[None]]
Batch: TypeAlias = Callable[[Sequence[HookCall], Sequence[Outcome]], Maybe[None]]


class Hook(Struct, frozen=True):
    """What is called around the calls of some tools.

    Plain functions run in the event loop, so they must not block. Calls that the model made wrongly
    (no such tool, switched off, arguments that do not fit) reach no hook.

    Attributes:
        tools: Real names, exact or as glob patterns (`git__*`); one that matches is enough.
        before: Called before a call runs.
        after: Called with what a tool gave, also if that is an error.
        failure: Told of a call that failed or was not let run, with what the model reads.
        batch: Told of all calls of a round that match, with their results in the same order. If
            it raises, the turn ends.

    Raises:
        ConfigurationError: A field holds what it cannot hold, or nothing is to be called.
    """

    tools: Annotated[
        Word | tuple[Word, ...],
        Meta(
            description="a tool's name or a list of names (functions go to before=, after=, "
            "failure= or batch=)"
        ),
    ] = "*"
    before: Before | None = None
    after: After | None = None
    failure: Failure | None = None
    batch: Batch | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.tools:
            raise ConfigurationError("Hook(tools=()): is for no tool; name one, or leave it out")
        if not any((self.before, self.after, self.failure, self.batch)):
            raise ConfigurationError(
                f"Hook({shown(self.tools)}): has nothing to call; give it before=, after=, "
                "failure= or batch="
            )

    def matches(self, name: str) -> bool:
        """Say whether the hook is for the tool with this real name."""
        patterns = (self.tools,) if isinstance(self.tools, str) else self.tools
        return any(name == each or fnmatchcase(name, each) for each in patterns)


class Passed(Struct, frozen=True):
    """What the hooks in front of a call made of it.

    Attributes:
        call: The call, with the arguments to run with.
        refused: What the model reads if it may not run.
        asks: Why a person has to be asked, a line for each hook that wants it.
        context: Texts to add behind the results.
    """

    call: Call
    refused: Outcome | None = None
    asks: tuple[str, ...] = ()
    context: tuple[str, ...] = ()


def in_front(hooks: Sequence[Hook], name: str) -> tuple[Hook, ...]:
    """Return the hooks that are asked before a tool runs, in order."""
    return tuple(hook for hook in hooks if hook.before is not None and hook.matches(name))


async def run_before(
    hooks: Sequence[Hook],
    call: Call,
    seen: Callable[[Call], HookCall],
    check: Callable[[Call], Resolved | Refused],
) -> Passed:
    """Run the hooks in front of one call.

    Args:
        hooks: The hooks in front of its tool, in order.
        call: The call in real form, with checked arguments.
        seen: Gives a call as a hook sees it.
        check: Coerces and checks changed arguments against the target.
    """
    asks: list[str] = []
    context: list[str] = []
    refused: Outcome | None = None
    for hook in hooks:
        if hook.before is None:
            continue
        try:
            answer = await _result(hook.before(seen(call)))
            match answer:
                case None:
                    pass
                case Deny(reason=reason):
                    refused = blocked(reason)
                case Ask(reason=reason):
                    asks.append(shortened(encoding.clean(reason), _SAID) or "a hook asks")
                case Change(arguments=arguments):
                    text = encoding.encode(dict(arguments)).decode()
                    found = check(msgspec.structs.replace(call, arguments=text))
                    if isinstance(found, Refused):
                        refused = Outcome(found.message, True, found.code)
                    else:
                        call = msgspec.structs.replace(call, arguments=found.call.arguments)
                case AddContext(text=text):
                    context.append(_context(text))
                case _:  # pyright: ignore[reportUnnecessaryComparison]
                    raise TypeError(f"a hook returned {type(answer).__name__}")
        except BaseException as error:
            if not is_own(error):
                raise
            refused = faulty(f"Blocked: a check of this call failed ({described(error)})")
        if refused is not None:
            break
    return Passed(call, refused, tuple(asks), tuple(context))


async def run_after(hooks: Sequence[Hook], call: HookCall, outcome: Outcome) -> Outcome:
    """Run the hooks behind one call; return what the model reads."""
    for hook in hooks:
        if hook.after is None or not hook.matches(call.name):
            continue
        try:
            answer = await _result(hook.after(_copy(call), outcome))
            if isinstance(answer, Replace):
                outcome = Outcome(encoding.clean(answer.text), outcome.is_error, outcome.code)
            elif answer is not None:  # pyright: ignore[reportUnnecessaryComparison]
                raise TypeError(f"a hook returned {type(answer).__name__}")
        except BaseException as error:
            if not is_own(error):
                raise
            return faulty(
                "the tool ran, but a check of its result failed, so the result is withheld "
                f"({described(error)})"
            )
    return outcome


async def run_failure(hooks: Sequence[Hook], call: HookCall, outcome: Outcome) -> Outcome:
    """Tell the hooks of a call that failed or was not let run; return what the model reads."""
    for hook in hooks:
        if hook.failure is None or not hook.matches(call.name):
            continue
        try:
            await _result(hook.failure(_copy(call), outcome))
        except BaseException as error:
            if not is_own(error):
                raise
            outcome = faulty(f"the call failed, and so did a hook for that ({described(error)})")
    return outcome


async def run_batch(
    hooks: Sequence[Hook], calls: Sequence[HookCall], outcomes: Sequence[Outcome]
) -> None:
    """Tell the hooks of a whole round.

    Raises:
        ConfigurationError: A hook failed: nothing goes on behind its back.
    """
    for hook in hooks:
        if hook.batch is None:
            continue
        places = [place for place, call in enumerate(calls) if hook.matches(call.name)]
        if not places:
            continue
        try:
            await _result(
                hook.batch([_copy(calls[p]) for p in places], [outcomes[p] for p in places])
            )
        except BaseException as error:
            if not is_own(error):
                raise
            raise ConfigurationError(
                f"a hook for the results of a round failed ({described(error)}); mend it and "
                "send the message again"
            ) from error


def blocked(reason: str) -> Outcome:
    """Return the result of a call that a hook or a policy did not let run."""
    return Outcome(
        f"Blocked: {shortened(encoding.clean(reason), _SAID) or 'this call is not allowed here'}",
        True,
        "BLOCKED",
    )


def faulty(text: str) -> Outcome:
    """Return the result of a call whose hook failed."""
    return Outcome(text, True, "HOOK_FAILED")


def described(error: BaseException) -> str:
    """Return one line on an error of foreign code, whatever it raises when it is asked."""
    return shortened(encoding.clean(errors.described(error)), _SAID)


async def _result(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given


def _copy(call: HookCall) -> HookCall:
    # What one hook does to the arguments, no other sees.
    arguments = encoding.decode(encoding.encode(call.arguments))
    return msgspec.structs.replace(call, arguments=arguments)


def _context(text: str) -> str:
    if len(text) > MAX_CONTEXT:
        raise ContentError(f"context of {len(text):,} characters; {MAX_CONTEXT:,} may be added")
    return encoding.clean(text)
