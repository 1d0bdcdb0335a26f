"""OpenAI's prompt cache, by the published rules: two kinds, by model.

Models before GPT-5.6 share token prefixes with earlier requests, at fixed steps and from a
minimum on. GPT-5.6 and later store exact prefixes at breakpoints: one implicit, at the end of the
latest eligible message, and explicit ones; a later request finds them at its own breakpoints and
at earlier eligible ends.

Where the documents are silent the less kind reading is taken: of too many explicit breakpoints
the latest are written, and a request in explicit mode does not find implicit entries.

Source: platform.openai.com, "Prompt caching".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from addendum.lab import facts
from addendum.lab.openai_rules import End
from addendum.lab.prefix import running
from addendum.lab.token_history import TokenHistory
from addendum.lab.tokens import Segment, stream


class Asked(Protocol):
    """A request in cache order, on either of OpenAI's wires."""

    @property
    def segments(self) -> Sequence[Segment]:
        """All that is read, in order."""
        ...

    @property
    def ends(self) -> Sequence[End]:
        """The end of each message or item."""
        ...

    @property
    def breakpoints(self) -> Sequence[int]:
        """Indexes of the segments with an explicit breakpoint."""
        ...


Mode = Literal["implicit", "explicit"]


class ExactWrite(msgspec.Struct, frozen=True):
    """A prefix to be stored when the answer begins, and the kind of its breakpoint."""

    digest: bytes
    kind: Mode


class ExactPriced(msgspec.Struct, frozen=True):
    """How the cache took a request, in tokens.

    Attributes:
        prompt: The whole prompt.
        read: Read from the cache.
        written: Written to it.
        writes: What is to be stored when the answer begins.
    """

    prompt: int
    read: int
    written: int
    writes: tuple[ExactWrite, ...]


class ExactCache:
    """Prefixes stored at breakpoints, for GPT-5.6 and later; lifetimes are in seconds."""

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._expires: dict[tuple[bytes, Mode], float] = {}

    def price(self, asked: Asked, *, key: bytes, mode: Mode, now: float) -> ExactPriced:
        """Read the cache for a request; what it found lives on from `now`.

        Args:
            asked: The request in cache order.
            key: What else has to be equal: account, model, cache key, settings.
            mode: The request's mode.
            now: The time at which the request started, in seconds.
        """
        digests = running(key, (each.text for each in asked.segments))
        sizes: list[int] = []
        for each in asked.segments:
            sizes.append(each.tokens + (sizes[-1] if sizes else 0))
        ends = eligible_ends(asked.ends)
        explicit = list(asked.breakpoints)
        first = facts.OPENAI_EXPLICIT_FIRST.value
        places = {*explicit[:first], *explicit[-facts.OPENAI_EXPLICIT_LATEST.value :]}
        if mode == "implicit":
            places.update(ends[-1 - facts.OPENAI_EARLIER_ENDS.value :])
            places.update(_initial_end(asked.ends))
        minimum = facts.OPENAI_MINIMUM_TOKENS.value
        kinds: tuple[Mode, ...] = ("explicit",) if mode == "explicit" else ("implicit", "explicit")
        read = 0
        for at in sorted(places, reverse=True):
            if sizes[at] >= minimum and self._alive(digests[at], kinds, now):
                read = sizes[at]
                self._refresh(digests[at], now)
                break
        for at in explicit:
            self._refresh(digests[at], now)
        wanted: list[tuple[int, Mode]] = [(at, "explicit") for at in explicit]
        if mode == "implicit":
            wanted.extend((at, "implicit") for at in ends[-1:])
        wanted = wanted[-facts.OPENAI_WRITES.value :]
        written: list[tuple[int, Mode]] = [
            (at, kind) for at, kind in wanted if sizes[at] >= minimum and sizes[at] > read
        ]
        return ExactPriced(
            prompt=sizes[-1],
            read=read,
            written=max((sizes[at] for at, _ in written), default=read) - read,
            writes=tuple(ExactWrite(digests[at], kind) for at, kind in written),
        )

    def store(self, writes: Sequence[ExactWrite], started: float) -> None:
        """Store prefixes: the answer of the request that started at `started` has begun."""
        for write in writes:
            self._expires[write.digest, write.kind] = started + self._lifetime

    def _alive(self, digest: bytes, kinds: Sequence[Mode], now: float) -> bool:
        return any(now < self._expires.get((digest, kind), now) for kind in kinds)

    def _refresh(self, digest: bytes, now: float) -> None:
        kinds: tuple[Mode, ...] = ("implicit", "explicit")
        for kind in kinds:
            if self._alive(digest, (kind,), now):
                self._expires[digest, kind] = now + self._lifetime


class SteppedCache:
    """Token prefixes at fixed steps: models before GPT-5.6, and compatible servers."""

    def __init__(self) -> None:
        self._history = TokenHistory()

    def read(self, asked: Asked, cache: facts.CacheFacts, *, key: bytes, now: float) -> int:
        """Return the cached tokens of a request: a multiple of the step."""
        shared = self._history.common(key, stream(asked.segments), now)
        cached = shared // cache.step * cache.step
        return cached if cached >= cache.minimum else 0

    def store(self, asked: Asked, *, key: bytes, expires: float) -> None:
        """Remember a request until a time in seconds: its answer has begun."""
        self._history.add(key, stream(asked.segments), expires)


def eligible_ends(ends: Sequence[End]) -> list[int]:
    """Return where an implicit breakpoint may stand, as indexes of segments, in order.

    Those are the ends of user messages, of the last tool message of a run, and of the last
    message of the initial run of developer (or system) messages.
    """
    found: list[int] = []
    for at, end in enumerate(ends):
        following = ends[at + 1].role if at + 1 < len(ends) else None
        if end.role == "user" or (end.role == "tool" and following != "tool"):
            found.append(end.last)
    return sorted({*_initial_end(ends), *found})


def _initial_end(ends: Sequence[End]) -> list[int]:
    initial: list[int] = []
    for end in ends:
        if end.role not in ("system", "developer"):
            break
        initial = [end.last]
    return initial


def openai_cache(model: facts.ChatModel) -> facts.CacheFacts:
    """Return how one of OpenAI's models is cached."""
    minimum = facts.OPENAI_MINIMUM_TOKENS.value
    if not model.exact:
        return facts.CacheFacts(minimum=minimum, step=model.step, lifetime=model.lifetime)
    return facts.CacheFacts(
        minimum=minimum,
        lookback=facts.OPENAI_EARLIER_ENDS.value,
        marks=facts.OPENAI_WRITES.value - 1,
        lifetime=model.lifetime,
        lifetimes=dict.fromkeys(facts.OPENAI_LIFETIMES.value, model.lifetime),
    )


class OpenAICache:
    """The cache of one account, whichever kind a model has."""

    def __init__(self) -> None:
        self._exact = ExactCache(facts.OPENAI_EXACT.lifetime)
        self._stepped = SteppedCache()

    def price(
        self, asked: Asked, *, key: bytes, model: facts.ChatModel, mode: Mode, now: float
    ) -> tuple[dict[str, int], Callable[[], None]]:
        """Say how a request is read, and how to store it once its answer begins.

        Args:
            asked: The request.
            key: What has to be equal for a prefix to be found.
            model: The model.
            mode: Where the exact kind sets its own breakpoint.
            now: Seconds.

        Returns:
            The details of the usage, in tokens, and what stores the request.
        """
        if model.exact:
            priced = self._exact.price(asked, key=key, mode=mode, now=now)
            details = {"cached_tokens": priced.read, "cache_write_tokens": priced.written}
            return details, lambda: self._exact.store(priced.writes, now)
        cached = self._stepped.read(asked, openai_cache(model), key=key, now=now)
        expires = now + model.lifetime
        return (
            {"cached_tokens": cached},
            lambda: self._stepped.store(asked, key=key, expires=expires),
        )
