"""Subagents: a tool that gives a task to a child session of an agent.

    helper = Agent("anthropic:claude-opus-5-5", tools=[read, write])
    main = Agent("...", tools=[subagent(helper, name="research", exclude=["write"])])

The child has its own head, log and cache. It lies in the same store under an id that follows from
the call, so it can be looked at like any session. What is excluded does not exist there: it is not
offered, not found by a search, not reached through the dispatcher, and neither a switch nor a child
of the child brings it back. Stopping the parent's turn stops the child.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import anyio
from msgspec import Raw

from addendum import encoding
from addendum.agent.agent import Agent
from addendum.agent.calls.approval import Decision
from addendum.agent.calls.unknown_names import Written, check_names
from addendum.agent.children import ChildTool
from addendum.agent.results import total
from addendum.agent.runtime import Runtime
from addendum.agent.session import runtime_of
from addendum.checked import Seconds, Word, check_value, checks_arguments
from addendum.errors import ConfigurationError, SessionMissing
from addendum.log.events import Event, ToolPolicy
from addendum.log.exchanges import exchanges
from addendum.log.store import Store
from addendum.log.subagents import SubagentEnded, SubagentStarted
from addendum.log.values import ToolSchema
from addendum.tools.functions import FunctionTool, ToolContext
from addendum.tools.names import check_function_names

_PARAMETERS = Raw(
    encoding.encode(
        {
            "type": "object",
            "properties": {
                "task": {
                    "type": "string",
                    "description": "The whole task, with all that is needed to do it: the other "
                    "agent knows nothing of this conversation.",
                }
            },
            "required": ["task"],
            "additionalProperties": False,
        }
    )
)
_LONGEST = 100
_NO_TEXT = "(it ended without a text)"
_ALONE = "nobody can be asked in a subagent"


@checks_arguments
def subagent(
    agent: Agent,
    *,
    name: Word,
    description: str = "Give a task to another agent and get its answer.",
    exclude: Collection[Word] = (),
    timeout: Seconds = 600.0,
    defer_loading: bool = False,
) -> FunctionTool[..., Any]:
    """Make a tool that gives a task to a child session.

    A call that the child's approval would ask a person about is asked through its `decide`, and is
    denied without one.

    Args:
        agent: Whose session it is; the parent's own agent, too.
        name: Name of the tool. The child can never use a tool of this name, so it does not open
            children of its own without end.
        description: What the model reads of it.
        exclude: Tools that the child can never use: real names, exact or as glob patterns. What
            the parent's session excludes is excluded as well.
        timeout: Seconds that a task may take.
        defer_loading: Keep it out of the head: it is offered once an update or a search shows it.

    Raises:
        ConfigurationError: The name cannot be used.
    """
    check_value("subagent", "agent", agent, Agent)
    check_function_names([name])
    written = [Written(f"subagent(exclude=[{each!r}])", each) for each in exclude]
    check_names(agent.setup, written, children=True)

    async def run(context: ToolContext, task: str) -> str:
        if context.host is None:
            raise ConfigurationError(f"{name} runs in a session only")
        return await _run(runtime_of(context.host), agent, context, task, {*exclude, name})

    schema = ToolSchema(name, encoding.clean(description), _PARAMETERS, defer_loading or None)
    return FunctionTool(schema, ChildTool(agent.setup, run), timeout, takes_context=True)


def child_id(context: ToolContext) -> str:
    """Return the id of the child session of a call, if it is not taken.

    Args:
        context: The call's.
    """
    parent = context.session
    if len(parent) > _LONGEST:
        parent = encoding.digest(parent)[:24]
    return f"{parent}.{context.turn}.{context.step}.{encoding.digest(context.call_id)[:8]}"


async def _free(store: Store, child: str) -> str:
    """Return an id that no session has: a deleted parent's child may have been named alike."""
    name, number = child, 0
    while True:
        try:
            await store.read(name, limit=1)
        except SessionMissing:
            return name
        number += 1
        name = f"{child}.{number}"


async def _run(
    parent: Runtime, agent: Agent, context: ToolContext, task: str, exclude: Collection[str]
) -> str:
    where = context.turn, context.step, context.call_id
    child = await _free(parent.store, child_id(context))
    excluded = tuple(sorted({*exclude, *parent.registry.excluded}))
    parent.log.append(SubagentStarted(*where, child, excluded))
    await parent.flush()
    events: Sequence[Event] = ()
    try:
        async with agent.open(
            child, store=parent.store, parent=parent.log.session, exclude=excluded
        ) as session:
            events = session.log.events
            runtime_of(session).above = parent
            if refused := set(parent.disabled) - set(session.log.disabled):
                # Names of the parent's: the child need not have such tools.
                session.log.append(ToolPolicy(tuple(sorted({*session.log.disabled, *refused}))))
                await runtime_of(session).flush()
            result = await session.run(task)
            while result.waiting:
                result = await session.decide(
                    {each.call_id: Decision("deny", text=_ALONE) for each in result.waiting}
                )
            return result.text if result.text.strip() else _NO_TEXT
    finally:
        counted = [each.usage for each in exchanges(events) if each.counted]
        parent.log.append(SubagentEnded(*where, child, len(counted), total(counted)))
        with anyio.CancelScope(shield=True):
            await parent.flush()
