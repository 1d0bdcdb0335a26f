"""Approval of tool calls: which may run, which are asked about, and what a person decides.

    approval = Approval(
        (Policy("allow", read_only=True), Policy("deny", "db__drop_*"), Policy("ask", server="db")),
        default="ask",
        decide=ask_in_my_window,
    )

The first policy that fits a call counts, the default where none does. Policies see the real tool
and the arguments it would run with; a policy for the dispatcher's name fits nothing. All calls of
a round that need an answer are asked about at once. Without `decide` the turn stops and waits:
`session.pending()` lists what for, `await session.decide({...})` goes on, in this process or,
after the session was opened again, in a later one.

An approval holds for the tool that was shown: its definition, its server, and what that says of
it. If the tool went or one of these changed meanwhile, the call does not run. The reason of a
question or a denial names the rule that spoke, such as `policy 2 (ask, server="db")`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast, get_args

from msgspec import Meta, Struct

from addendum import encoding
from addendum.agent.calls.hooks import described
from addendum.allowed import shown
from addendum.checked import Word, check_fields, check_value, check_word
from addendum.errors import ConfigurationError
from addendum.log.approvals import (
    ApprovalAsked,
    ApprovalDecided,
    AskedCall,
    DecidedCall,
)
from addendum.log.events import Event, RequestHeader
from addendum.log.known import KnownTool, ToolsKnown
from addendum.tools.entries import ToolEntry, hints_known, terms, unrecorded
from addendum.tools.entries import definition as definition
from addendum.tools.envelope import MAX_ARGUMENTS
from addendum.tools.foreign import is_own
from addendum.tools.registry import Outcome
from addendum.tools.search import TOOL_SEARCH_NAME

Action: TypeAlias = Literal["allow", "ask", "deny"]
OnRedefinition: TypeAlias = Literal["accept", "ask", "keep"]

Kind: TypeAlias = Literal["approve", "deny", "edit", "respond"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""What may be decided of a call."""


class Policy(Struct, frozen=True):
    """What happens to the calls that all of its conditions fit.

    Attributes:
        action: `allow`, `ask` or `deny`.
        tool: Real name of the tool, exact or as a glob pattern; upper and lower case differ.
        server: Name of the MCP server, exact or as a glob pattern. Own functions have none, but
            `RESOURCE_TOOLS` have those that a call reads: `allow` is for a call if it fits all of
            them, `ask` and `deny` are if they fit one.
        read_only: Whether the server says so (`readOnlyHint`), or the function was made so
            (`@tool(read_only=True)`). What nobody says is no. It is the server's word: use it for
            servers that you trust.
        destructive: Whether it may destroy (`destructiveHint`). What a server does not say is yes,
            unless the tool is read-only.
        when: A predicate of the arguments. If it raises, or returns anything but True and False,
            the call is denied.

    Raises:
        ConfigurationError: A field holds what it cannot hold.
    """

    action: Action
    tool: Word = "*"
    server: Word | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    when: Callable[[dict[str, Any]], bool] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def fits(self, entry: ToolEntry, arguments: str) -> bool:
        """Say whether the policy is for a call of this tool with these arguments."""
        name = entry.schema.name
        if not (name == self.tool or fnmatchcase(name, self.tool)):
            return False
        given: Any = None
        if self.when is not None or entry.reaches is not None:
            given = encoding.decode(arguments or "{}", limit=MAX_ARGUMENTS)
        if self.server is not None:
            fitting = [
                server == self.server or fnmatchcase(server, self.server)
                for server in entry.servers(given)
            ]
            if not fitting or not (all if self.action == "allow" else any)(fitting):
                return False
        read_only, destructive = hints(entry)
        if self.read_only not in (None, read_only) or self.destructive not in (None, destructive):
            return False
        if self.when is None:
            return True
        answer: Any = self.when(given)
        if inspect.iscoroutine(answer):
            answer.close()
        if not isinstance(answer, bool):
            # Nobody knows what it means; a coroutine, for one, would always count as yes.
            raise TypeError(f"`when` returned {type(answer).__name__}, not True or False")
        return answer

    def told(self, number: int) -> str:
        """Return how the policy is called where it spoke.

        Args:
            number: Its place among all policies, from 1.
        """
        words: list[str] = [self.action]
        if self.tool != "*":
            words.append(f"tool={encoding.encode(self.tool).decode()}")
        if self.server is not None:
            words.append(f"server={encoding.encode(self.server).decode()}")
        if self.read_only is not None:
            words.append(f"read_only={self.read_only}")
        if self.destructive is not None:
            words.append(f"destructive={self.destructive}")
        if self.when is not None:
            words.append("when")
        return f"policy {number} ({', '.join(words)})"


class Pending(Struct, frozen=True):
    """A call that waits for a person.

    Attributes:
        call_id: Key of its decision.
        name: The real tool.
        arguments: JSON text of the arguments it would run with.
        reason: Why it is asked: which rule says so.
        definition: Digest of what is approved: the tool's definition, its server and its hints.
        kinds: What may be decided.
    """

    call_id: str
    name: str
    arguments: str
    reason: str
    definition: str
    kinds: tuple[Kind, ...] = KINDS

    def __post_init__(self) -> None:
        check_fields(self)


class Decision(Struct, frozen=True):
    """What a person decides of one call.

    Attributes:
        kind: `approve`; `deny` with a reason; `edit`: run with other arguments; `respond`: do not
            run, the model reads `text` as the result.
        arguments: The arguments of an edit. They are checked like the model's own, and by hooks
            and denials too.
        text: The reason or the response.
        always: With `approve` or `edit`: do not ask about this tool again in this session, as long
            as its definition, its server and its hints are as now. What hooks ask is asked still,
            and so is a tool that reads whatever server a call names (`RESOURCE_TOOLS`).

    Raises:
        ConfigurationError: A field holds what it cannot hold, or does not go with the kind.
    """

    kind: Kind
    arguments: Mapping[str, Any] | None = None
    text: str = ""
    always: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.kind == "edit") != (self.arguments is not None):
            needs = (
                "needs those that the call is to run with" if self.kind == "edit" else "takes none"
            )
            raise ConfigurationError(
                f"Decision({self.kind!r}, arguments={shown(self.arguments)}): {self.kind} {needs}; "
                "Decision('edit', {...}) runs a call with other arguments"
            )
        if self.arguments is not None:
            try:
                encoding.encode(dict(self.arguments))
            except Exception as error:  # whatever is in it, it is no JSON
                raise ConfigurationError(
                    f"Decision(arguments={shown(self.arguments)}): must be JSON ({error})"
                ) from error
        if self.always and self.kind not in ("approve", "edit"):
            raise ConfigurationError(
                f"Decision({self.kind!r}, always=True): only 'approve' or 'edit' holds for later "
                "calls; a Policy('deny', TOOL) refuses all of them"
            )


Decisions: TypeAlias = Mapping[str, Decision | str]
"""Decisions by call id; a bare word is a decision of that kind."""

Decide: TypeAlias = Callable[[Sequence[Pending]], Awaitable[Decisions] | Decisions]


class Approval(Struct, frozen=True):
    """Rules of approval.

    Attributes:
        policies: The first that fits a call counts.
        default: For calls that no policy fits. `tool_search` runs nothing and is asked about only
            if a policy says so.
        decide: Asks a person about all calls of a round at once. What it leaves out is denied, and
            if it raises, all are. None has the turn wait.
        kinds: What may be decided: anything else is an error, and fails the call if it is
            `decide` that gives it.

    Raises:
        ConfigurationError: A field holds what it cannot hold.
    """

    policies: tuple[Policy, ...] = ()
    default: Action = "ask"
    decide: Decide | None = None
    kinds: Annotated[tuple[Kind, ...], Meta(min_length=1)] = KINDS

    def __post_init__(self) -> None:
        check_fields(self)

    def judge(self, entry: ToolEntry, arguments: str) -> tuple[Action, str]:
        """Return what happens to a call, and why."""
        for number, policy in enumerate(self.policies, 1):
            try:
                fits = policy.fits(entry, arguments)
            except BaseException as error:
                if not is_own(error):
                    raise
                return "deny", f"{policy.told(number)} failed ({described(error)})"
            if fits:
                return policy.action, policy.told(number)
        if entry.schema.name == TOOL_SEARCH_NAME:
            return "allow", ""
        return self.default, "no policy allows it"


class Consent:
    """What a session's log says of earlier decisions, by tool: a fold of the log.

    Args:
        trusted_from: Seq from which on decisions count. What was allowed in a log that somebody
            changed since may be what they wrote.
    """

    kinds: ClassVar[frozenset[type]] = frozenset(
        {ToolsKnown, RequestHeader, ApprovalAsked, ApprovalDecided}
    )

    def __init__(self, trusted_from: int = 0) -> None:
        self._trusted_from = trusted_from
        self._asked: dict[str, AskedCall] = {}
        self._accepted: dict[str, str] = {}
        self._always: dict[str, str] = {}
        self._known: dict[str, KnownTool] = {}

    def take(self, event: Event) -> None:
        """Take in what was offered, asked or decided."""
        data = event.data
        if isinstance(data, ToolsKnown):
            self._known.update({tool.name: tool for tool in data.tools})
        elif isinstance(data, RequestHeader):
            for tool in [each for each in data.header.tools if each.name not in self._accepted]:
                record = self._known.get(tool.name, unrecorded(tool.name))
                if record is not None:
                    self._accepted[tool.name] = terms(tool, record.server, hints_known(record))
        elif event.seq < self._trusted_from:
            return
        elif isinstance(data, ApprovalAsked):
            self._asked = {call.call_id: call for call in data.calls}
        elif isinstance(data, ApprovalDecided):
            for answer in data.decisions:
                call = self._asked.get(answer.call_id)
                if call is None:  # The question is not the one that was asked.
                    continue
                if call.reason is not None and answer.kind in ("approve", "edit"):
                    self._accepted[call.name] = call.definition
                    if answer.always:
                        self._always[call.name] = call.definition

    def redefined(self, name: str, terms: str) -> bool:
        """Say whether a tool is no longer as it was first offered, or last approved.

        Args:
            name: The tool.
            terms: The digest of its terms now.
        """
        return self._accepted.get(name, terms) != terms

    def always(self, name: str, terms: str) -> bool:
        """Say whether a person allowed this tool, as it is now, for the whole session.

        Args:
            name: The tool.
            terms: The digest of its terms now.
        """
        return self._always.get(name) == terms


def hints(entry: ToolEntry) -> tuple[bool, bool]:
    """Return whether a tool is read-only and whether it is destructive, by its maker's word."""
    found = entry.hints
    return found.read_only, found.destructive


def pending(asked: ApprovalAsked | None, kinds: tuple[Kind, ...] = KINDS) -> tuple[Pending, ...]:
    """Return the calls of a batch that need an answer, in the model's order."""
    return tuple(
        Pending(call.call_id, call.name, call.arguments, call.reason, call.definition, kinds)
        for call in (() if asked is None else asked.calls)
        if call.reason is not None
    )


def complete(
    asked: ApprovalAsked | None, decisions: Decisions, session: str, kinds: tuple[Kind, ...] = KINDS
) -> None:
    """Check that decisions answer what waits, no more and no less, in words that there are.

    Args:
        asked: What waits.
        decisions: The decisions.
        session: The session's id.
        kinds: What may be decided here.

    Raises:
        ConfigurationError: They do not; nothing was decided.
    """
    wanted = [each.call_id for each in pending(asked)]
    if not wanted:
        raise ConfigurationError("no call waits for a decision", session=session)
    if missing := [call_id for call_id in wanted if call_id not in decisions]:
        raise ConfigurationError(
            f"a decision is missing for {', '.join(missing)}; decide all calls of "
            "session.pending() at once",
            session=session,
        )
    if unknown := [call_id for call_id in decisions if call_id not in wanted]:
        raise ConfigurationError(
            f"no call {unknown[0][:100]!r} waits for a decision; use the ids of session.pending()",
            session=session,
        )
    for call_id, given in decisions.items():
        kind = given.kind if isinstance(given, Decision) else given
        check_word("Session.decide", f"decisions[{call_id!r}]", kind, kinds)
        decided(call_id, given)


async def handled(approval: Approval, asked: ApprovalAsked) -> Mapping[str, DecidedCall]:
    """Ask the handler; whatever is wrong with its answer counts as a denial.

    Args:
        approval: Rules with a handler.
        asked: The batch.
    """
    assert approval.decide is not None
    waiting = pending(asked, approval.kinds)
    try:
        given: Any = approval.decide(waiting)
        if inspect.isawaitable(given):
            given = await given
        check_value("Approval.decide", "its answer", given, Mapping)
        answers = {each.call_id: given[each.call_id] for each in waiting if each.call_id in given}
    except BaseException as error:
        if not is_own(error):
            raise
        why = f"nobody could be asked ({described(error)})"
        return {each.call_id: DecidedCall(each.call_id, "deny", text=why) for each in waiting}
    return {call_id: _answered(call_id, answer) for call_id, answer in answers.items()}


def _answered(call_id: str, given: Any) -> DecidedCall:
    try:
        return decided(call_id, given)
    except Exception as error:
        return DecidedCall(
            call_id, "deny", text=f"what was decided is unclear ({described(error)})"
        )


def decided(call_id: str, given: Decision | str) -> DecidedCall:
    """Return a decision as the log keeps it.

    Raises:
        ConfigurationError: It is no decision.
    """
    check_value("Session.decide", f"decisions[{call_id!r}]", given, Decision | str)
    if isinstance(given, str):
        given = Decision(cast("Kind", given))
    edited = given.arguments
    arguments = None if edited is None else encoding.encode(dict(edited)).decode()
    return DecidedCall(call_id, given.kind, arguments, encoding.clean(given.text), given.always)


def denied(why: str) -> Outcome:
    """Return the result of a call that a person did not approve."""
    said = " ".join(why.split())
    return Outcome(f"Blocked: {said or 'the user did not approve this call'}", True, "DENIED")


def outdated(name: str, why: str) -> Outcome:
    """Return the result of a call that was approved in another form than it would run in now."""
    return Outcome(
        f"proposal changed: {name} {why}; it was not run. Look at it again before you call it.",
        True,
        "PROPOSAL_CHANGED",
    )
