"""What of a request is optional and may be refused: a state per feature and endpoint, that expires.

A feature is `unknown` until a request that has it is answered (`taken`) or it was given up for a
refusal (`refused`). What was taken is never suspected; what was refused is not sent again until the
state expires, as endpoints change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from addendum import encoding
from addendum.log.store import Store
from addendum.routes import Route

State: TypeAlias = Literal["unknown", "taken", "refused"]

_KIND = "features"
LASTS = 7 * 86_400.0
"""Seconds for which a state is known."""


class Feature(Struct, frozen=True):
    """A feature at an endpoint.

    Attributes:
        state: Whether it was taken or refused.
        since: Seconds since the epoch.
    """

    state: State
    since: float


_decoder = msgspec.json.Decoder(dict[str, Feature])


class Features:
    """The features of requests to the endpoints that one session talks to.

    Args:
        store: Where they are kept.
        clock: Seconds since the epoch.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, Mapping[str, Feature]] = {}

    def state(self, route: Route, feature: str) -> State:
        """Return what is known of a feature, as far as it was read."""
        kept = self._known.get(endpoint_key(route), {}).get(feature)
        return kept.state if kept and self._clock() - kept.since < LASTS else "unknown"

    def refused(self, route: Route) -> frozenset[str]:
        """Return the features that the route's endpoint refused, as far as they were read."""
        names = self._known.get(endpoint_key(route), {})
        return frozenset(name for name in names if self.state(route, name) == "refused")

    async def read(self, route: Route) -> None:
        """Read what is known of the route's endpoint from other sessions, once."""
        key = endpoint_key(route)
        if key not in self._known:
            self._known[key] = await self._stored(key)

    async def _stored(self, key: str) -> Mapping[str, Feature]:
        stored = await self._store.get(_KIND, key)
        try:
            return _decoder.decode(stored) if stored else {}
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # What is damaged says nothing, and is found out again.
            return {}

    async def note(self, route: Route, features: Iterable[str], state: State) -> None:
        """Keep what became of features, beside what is known, to other sessions too.

        What another session was refused is not taken back.

        Args:
            route: The route.
            features: Their names.
            state: What became of them.
        """
        key, now = endpoint_key(route), self._clock()
        changed = [name for name in features if self.state(route, name) != state]
        if not changed:
            return
        self._known[key] = {**self._known.get(key, {}), **await self._stored(key)}
        weaker = ("unknown",) if state == "taken" else ("unknown", "taken")
        fresh = {name: Feature(state, now) for name in changed if self.state(route, name) in weaker}
        if fresh:
            self._known[key] = {**self._known[key], **fresh}
            expires = int((now + LASTS) * 1000)
            await self._store.put(_KIND, key, encoding.encode(self._known[key]), expires=expires)


def endpoint_key(route: Route) -> str:
    """Return what names a route's endpoint in the store."""
    return f"{route.name} {route.endpoint.base_url}"
