"""What endpoints refused: kept in the store, so that new sessions need not find out; it expires."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from addendum.agent.context.features import LASTS, Features, endpoint_key
from addendum.errors import ProviderError
from addendum.log.store import Store
from addendum.routes import Route
from addendum.wire.refusal import refusal_text, refuses_form

_WITHHELD = "withheld"
_MOST = 1_000
"""Definitions that are kept of one endpoint."""


class Downgrades:
    """What is known of the endpoints that one session talks to.

    Args:
        store: Where it is kept.
        clock: Seconds since the epoch.

    Attributes:
        features: What is known of the features of their requests.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self.features = Features(store, clock)
        self._withheld: dict[str, frozenset[str]] = {}

    def known(self, route: Route) -> frozenset[str]:
        """Return the fields that the route's endpoint refused, as far as they were read."""
        return self.features.refused(route)

    async def read(self, route: Route) -> None:
        """Read what the route's endpoint refused in other sessions, once."""
        key = endpoint_key(route)
        if key not in self._withheld:
            await self.features.read(route)
            self._withheld[key] = await self._words(_WITHHELD, key)

    async def _words(self, kind: str, key: str) -> frozenset[str]:
        """Return stored words; what is damaged names nothing, and is found out again."""
        stored = await self._store.get(kind, key)
        return frozenset(stored.decode(errors="replace").split() if stored else ())

    async def keep(self, route: Route, rejected: Collection[str]) -> None:
        """Keep what the route's endpoint refused, beside what is known.

        Args:
            route: The route.
            rejected: Names of the refused fields.
        """
        await self.features.note(route, rejected, "refused")

    def withheld(self, route: Route) -> frozenset[str]:
        """Return the digests of definitions that the route's endpoint refused."""
        return self._withheld.get(endpoint_key(route), frozenset())

    async def withhold(self, route: Route, digests: Collection[str]) -> None:
        """Keep which definitions the route's endpoint refused, beside what is known.

        Args:
            route: The route.
            digests: Digests of the definitions.
        """
        key = endpoint_key(route)
        self._withheld[key] = self.withheld(route) | set(digests)
        text = " ".join(sorted(self._withheld[key])[:_MOST])
        expires = int((self._clock() + LASTS) * 1000)
        await self._store.put(_WITHHELD, key, text.encode(), expires=expires)


# "Invalid `signature` in `thinking` block", "... bound to a different conversation", "... cannot be
# modified" (platform.claude.com: Troubleshooting thinking, Preserved thinking);
# invalid_encrypted_content (openclaw/openclaw#90093); "Corrupted thought signature" (Gemini).
_REASONING = re.compile(
    r"invalid\W+(?:thought\W+)?signature|corrupted thought|invalid_encrypted_content"
    r"|thinking.{0,80}(?:cannot be modified|different conversation)",
    re.IGNORECASE | re.DOTALL,
)


def refuses_reasoning(error: ProviderError) -> bool:
    """Say whether a refusal is about reasoning of earlier answers, which can be left out."""
    return (
        refuses_form(error) and _REASONING.search(f"{error.code} {refusal_text(error)}") is not None
    )
