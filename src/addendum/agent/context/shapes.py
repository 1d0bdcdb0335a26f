"""Shapes of a history that an endpoint refuses: found by trying, remembered, and told.

Where a refusal says which shape it is about, that one is given up (`weaker`). Where nobody can
tell, the request is sent once more without all that this endpoint was never seen to take: if that
is answered, they were it; if not, all is as it was, and the refusal is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import structs

from addendum.agent.context.requests import Ready
from addendum.agent.results import Notice
from addendum.agent.runtime import Runtime
from addendum.errors import ProviderError
from addendum.log.events import RequestContext, RouteDowngrade
from addendum.prompt.blocks import Block, Native, Prompt, Result, Text, Use
from addendum.prompt.rounds import SHORT_ID
from addendum.routes import Route, shapes
from addendum.wire.apis import wire
from addendum.wire.refusal import refusal_text, refuses_form, too_large

WORDS = {
    "user-after-user": "two messages of the user in a row",
    "user-after-result": "a message of the user behind a result",
    "empty-answer": "an empty answer",
    "nameless-result": "a result without the tool's name",
    "long-call-id": "a call id of more than nine letters and digits",
    "text-parts": "text in parts",
    "null-content": "an answer with calls and no content",
    "usage-option": "to be asked for usage in a stream",
}
"""What a person is told of a shape; the fields of reasoning have their names."""


class ShapeTrial:
    """What is tried after one request was refused for no reason that is known.

    Args:
        run: The session.
    """

    def __init__(self, run: Runtime) -> None:
        self._run = run
        self._before: RequestContext | None = None
        self._suspects: tuple[str, ...] = ()

    def next(
        self, context: RequestContext, ready: Ready, error: ProviderError
    ) -> RequestContext | None:
        """Return what to try next after a refusal, or None if there is nothing.

        Args:
            context: What the refused request was rendered with.
            ready: The request.
            error: The refusal.
        """
        if self._before is not None or too_large(error) or not _is_doubtful(self._run.route):
            return None
        if not refuses_form(error):
            return None
        states, route, prompt = self._run.downgrades.features, self._run.route, ready.prompt
        found = in_use(prompt.blocks, prompt) & shapes(context)
        unknown = sorted(name for name in found if states.state(route, name) == "unknown")
        if not unknown:
            return None
        self._before, self._suspects = context, tuple(unknown)
        return structs.replace(context, avoids=(*context.avoids, *unknown))

    def undone(self, context: RequestContext) -> RequestContext:
        """Return what to go on with where what was tried did not help."""
        before, self._before, self._suspects = self._before, None, ()
        return context if before is None else before

    async def settle(self, ready: Ready) -> Notice | None:
        """Keep what was given up and what was taken, since the request was answered.

        Returns:
            What tells of what was given up for it; None if nothing was.
        """
        run, route, context = self._run, self._run.route, ready.prompt.context
        suspects, self._suspects, self._before = self._suspects, (), None
        if suspects:
            run.log.append(
                RouteDowngrade(
                    route.name,
                    route.endpoint.base_url,
                    suspects,
                    context.projection,
                    context.definitions,
                )
            )
            await run.downgrades.keep(route, suspects)
        features = run.downgrades.features
        unknown = [n for n in shapes(context) if features.state(route, n) == "unknown"]
        if unknown:
            taken = in_use(ready.prompt.open, ready.prompt).intersection(unknown)
            await features.note(route, taken, "taken")
        return Notice(given_up(route.name, suspects)) if suspects else None


def named_shapes(context: RequestContext, prompt: Prompt, error: ProviderError) -> frozenset[str]:
    """Return the shapes that a refusal names; none if the request has none of them.

    Words that fit nothing that was sent are about something else, and giving it up would help
    nobody.

    Args:
        context: What the refused request was rendered with.
        prompt: The request.
        error: The refusal.
    """
    named = wire(context.wire).refused_shapes(refusal_text(error)) & shapes(context)
    return named if named & in_use(prompt.blocks, prompt) else frozenset()


def _is_doubtful(route: Route) -> bool:
    """Say whether an endpoint may refuse what its data says that it takes."""
    own_server = route.endpoint.key_optional
    return own_server or not route.endpoint.vouched or route.certainty != "documented"


def given_up(route: str, names: Iterable[str]) -> str:
    """Return the line that tells which shapes a route refused."""
    told = ", ".join(WORDS.get(name, name) for name in names)
    return f"{route} refused {told}; going on without, which it remembers for a week"


def in_use(blocks: Sequence[Block], prompt: Prompt) -> frozenset[str]:
    """Return the shapes that a history has.

    Args:
        blocks: Its blocks, or those that are new.
        prompt: The request that holds them.
    """
    found = {"usage-option"}
    if len(prompt.system) > 1:
        found.add("text-parts")
    last: Block | None = None
    for block in blocks:
        if isinstance(block, Text) and block.role == "user":
            tailed = prompt.tail is not None and block.purpose == "human"
            if tailed or (isinstance(last, Text) and last.role == "user"):
                found.add("user-after-user")
            if isinstance(last, Result):
                found.add("user-after-result")
        elif isinstance(block, Result):
            found.add("nameless-result")
        if isinstance(block, Result | Use) and not re.fullmatch(SHORT_ID, block.call_id):
            found.add("long-call-id")
        if isinstance(block, Use) and (last is None or last.seq != block.seq):
            found.add("null-content")
        if isinstance(block, Native):
            found |= wire(prompt.context.wire).answer_shapes(block.raw)
        last = block
    return frozenset(found)
