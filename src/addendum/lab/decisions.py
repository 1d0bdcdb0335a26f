"""What a scenario decides of calls that wait for a person."""

from __future__ import annotations

from collections.abc import Sequence

from addendum import encoding
from addendum.agent.calls.approval import Approval, Decision, Pending, Policy
from addendum.errors import ConfigurationError
from addendum.lab.scenario import Decide


def rules(asked: Sequence[str]) -> Approval | None:
    """Return rules that ask about these tools, and about no other.

    Args:
        asked: Names; a server's own name for a tool fits it, too.
    """
    if not asked:
        return None
    # Patterns both: a tool that a step adds is none yet, and an exact name would have to be.
    patterns = [
        pattern for name in asked for pattern in (f"[{name[0]}]{name[1:]}", f"*__{name}") if name
    ]
    return Approval(tuple(Policy("ask", pattern) for pattern in patterns), default="allow")


def decisions(step: Decide, waiting: Sequence[Pending], *, scripted: bool) -> dict[str, Decision]:
    """Return the decisions of a step by call id; what it does not name is denied.

    Args:
        step: The step.
        waiting: The calls that wait.
        scripted: Whether the calls were written down: then each name of the step has one.

    Raises:
        ConfigurationError: No call of a tool waits.
    """
    found = {each.call_id: Decision("deny") for each in waiting}
    for verdict in step.verdicts:
        own = [
            each
            for each in waiting
            if each.name == verdict.tool or each.name.endswith(f"__{verdict.tool}")
        ]
        if scripted and not own:
            raise ConfigurationError(
                f"no call of {verdict.tool} waits for a decision; have the model call it in the "
                "turn in front of the `decide` step"
            )
        given = verdict.arguments
        arguments = None if given is None else encoding.decode(bytes(given))
        found.update(
            {each.call_id: Decision(verdict.kind, arguments, verdict.text) for each in own}
        )
    return found
