"""Shapes of a history that an endpoint refuses: found by trying, remembered, and told.

Where a refusal says which shape it is about, that one is given up (`weaker`). Where nobody can
tell, the request is sent once more without all that this endpoint was never seen to take: if that
is answered, they were it; if not, all is as it was, and the refusal is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw, json, structs

from addendum.agent.requests import Ready
from addendum.agent.results import Notice, StreamEvent
from addendum.errors import ProviderError, ProviderRefused
from addendum.log.events import RequestContext, RouteDowngrade
from addendum.prompt.blocks import Block, Native, Prompt, Result, Text, Use
from addendum.prompt.rounds import SHORT_ID
from addendum.routes import Route, shapes
from addendum.wire.refusal import too_large

if TYPE_CHECKING:
    from addendum.agent.session import Session

WORDS = {
    "user-after-user": "two messages of the user in a row",
    "user-after-result": "a message of the user behind a result",
    "empty-answer": "an empty answer",
    "nameless-result": "a result without the tool's name",
    "long-call-id": "a call id of more than nine letters and digits",
    "text-parts": "text in parts",
}
"""What a person is told of a shape; the fields of reasoning have their names."""


class ShapeTrial:
    """What is tried after one request was refused for no reason that is known.

    Args:
        session: The session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
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
        session = self._session
        if self._before is not None or too_large(error) or not _is_doubtful(session.route):
            return None
        if not isinstance(error, ProviderRefused) or error.status not in (400, 422):
            return None
        states = session.downgrades.features
        prompt = ready.prompt
        found = in_use(prompt.blocks, prompt) & shapes(context)
        route = session.route
        unknown = sorted(name for name in found if states.state(route, name) == "unknown")
        if not unknown:
            return None
        self._before, self._suspects = context, tuple(unknown)
        return structs.replace(context, avoids=(*context.avoids, *unknown))

    def undone(self, context: RequestContext) -> RequestContext:
        """Return what to go on with where what was tried did not help."""
        before, self._before, self._suspects = self._before, None, ()
        return context if before is None else before

    async def settle(self, ready: Ready, emit: Callable[[StreamEvent], None]) -> None:
        """Keep and tell what was given up, since the request was answered; and what was taken."""
        session, route, context = self._session, self._session.route, ready.prompt.context
        if self._suspects:
            suspects, self._suspects = self._suspects, ()
            session.log.append(
                RouteDowngrade(
                    route.name,
                    route.endpoint.base_url,
                    suspects,
                    context.projection,
                    context.definitions,
                )
            )
            await session.downgrades.keep(route, suspects)
            emit(Notice(given_up(route.name, suspects)))
        features = session.downgrades.features
        unknown = [n for n in shapes(context) if features.state(route, n) == "unknown"]
        if unknown:
            taken = in_use(ready.prompt.open, ready.prompt).intersection(unknown)
            await features.note(route, taken, "taken")


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
    found: set[str] = set()
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
        if isinstance(block, Native):
            found |= _of_answer(block.raw)
        last = block
    return frozenset(found)


def _of_answer(raw: Raw) -> frozenset[str]:
    message = json.decode(raw, type=dict[str, Raw])
    found = {name for name in ("reasoning_content", "reasoning", "reasoning_details")}
    found &= message.keys()
    if "tool_calls" not in message and bytes(message.get("content", Raw(b"null"))) in _BLANK:
        found.add("empty-answer")
    return frozenset(found)


_BLANK = (b"null", b'""', b"[]")
