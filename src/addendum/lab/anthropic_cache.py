"""Claude's prompt cache, by the published rules.

Prefixes are written at marks only and found by walking back from a mark, at most 20 positions
with the mark's own; runs of `tool_use` blocks and of `tool_result` blocks are one position each.
A prefix below the model's minimum is neither written nor read. Lifetimes count from the start of
the request that wrote or read. What a request writes can be read once its answer has begun.

Three readings are ours where the documents leave it open, all the less kind one: each block of a
run of `tool_addition` blocks is a position, a hit does not change the lifetime an entry has, and a
mark within what is read, where no token is written, stores nothing.

Source: platform.claude.com, "Prompt caching" (2026-09-26).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from addendum.lab.anthropic_render import Block
from addendum.lab.facts import CacheFacts
from addendum.lab.prefix import running

_RUNS = ("tool_use", "tool_result")


class Priced(msgspec.Struct, frozen=True):
    """How the cache took a request, in tokens.

    Attributes:
        read: Read from the cache.
        written_5m: Written for five minutes.
        written_1h: Written for an hour.
        uncached: Neither.
    """

    read: int
    written_5m: int
    written_1h: int
    uncached: int

    @property
    def usage(self) -> dict[str, Any]:
        """The input part of a `usage` object."""
        return {
            "input_tokens": self.uncached,
            "cache_creation_input_tokens": self.written_5m + self.written_1h,
            "cache_read_input_tokens": self.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written_5m,
                "ephemeral_1h_input_tokens": self.written_1h,
            },
        }


@dataclass
class _Entry:
    lifetime: float
    expires: float


class Write(msgspec.Struct, frozen=True):
    """A prefix to be stored when the answer begins: its digest and its mark's lifetime."""

    digest: bytes
    lifetime: float


class PrefixCache:
    """The entries of all workspaces and models."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}

    def price(
        self,
        blocks: Sequence[Block],
        *,
        keys: Mapping[str, bytes],
        facts: CacheFacts,
        now: float,
        places: Sequence[int] | None = None,
    ) -> tuple[Priced, tuple[Write, ...]]:
        """Read the cache for a request; what it found lives on from `now`.

        Args:
            blocks: The request in cache order.
            keys: What else has to be equal, by the section from which on it counts: `tools`
                (then for all), `system`, `messages`.
            facts: How the model is cached.
            now: The time at which the request started, in seconds.
            places: The position of each block, where the facts do not say it all.

        Returns:
            The figures, and what is to be stored when the answer begins.
        """
        digests = _digests(blocks, keys)
        sizes = _sizes(blocks)
        marks = [at for at, block in enumerate(blocks) if block.mark and sizes[at] >= facts.minimum]
        if not marks:
            return Priced(0, 0, 0, sizes[-1] if sizes else 0), ()
        places = positions(blocks, runs=facts.runs) if places is None else places
        hit = self._find(marks, places, digests, now, facts.lookback)
        for at in {*marks, *([hit] if hit is not None else [])}:
            self._refresh(digests[at], now)
        read = sizes[hit] if hit is not None else 0
        last = max(read, sizes[marks[-1]])
        hours = [sizes[at] for at in marks if blocks[at].mark == "1h" and sizes[at] > read]
        middle = max(hours, default=read)
        writes = tuple(
            Write(digests[at], facts.lifetimes[blocks[at].mark or "5m"])
            for at in marks
            if sizes[at] > read
        )
        return Priced(read, last - middle, middle - read, sizes[-1] - last), writes

    def store(self, writes: Sequence[Write], started: float) -> None:
        """Store prefixes: the answer of the request that started at `started` has begun."""
        for write in writes:
            before = self._entries.get(write.digest)
            expires = started + write.lifetime
            if before is None or before.expires < expires:
                self._entries[write.digest] = _Entry(write.lifetime, expires)

    def _find(
        self,
        marks: Sequence[int],
        places: Sequence[int],
        digests: Sequence[bytes],
        now: float,
        lookback: int,
    ) -> int | None:
        """Return the longest stored prefix within reach of a mark."""
        for mark in reversed(marks):
            oldest = places[mark] - lookback + 1
            at = mark
            while at >= 0 and places[at] >= oldest:
                if self._alive(digests[at], now):
                    return at
                at -= 1
        return None

    def _alive(self, digest: bytes, now: float) -> bool:
        entry = self._entries.get(digest)
        return entry is not None and now < entry.expires

    def _refresh(self, digest: bytes, now: float) -> None:
        entry = self._entries.get(digest)
        if entry is not None and now < entry.expires:
            entry.expires = max(entry.expires, now + entry.lifetime)


def positions(blocks: Sequence[Block], *, runs: bool) -> list[int]:
    """Return the position of each block; where `runs`, one of calls or of results shares one."""
    found: list[int] = []
    for at, block in enumerate(blocks):
        same = runs and at > 0 and block.kind in _RUNS and blocks[at - 1].kind == block.kind
        found.append((found[-1] if found else -1) + (0 if same else 1))
    return found


def _digests(blocks: Sequence[Block], keys: Mapping[str, bytes]) -> list[bytes]:
    parts: list[bytes] = []
    section = "tools"
    order = ("tools", "system", "messages")
    for block in blocks:
        entered = order[order.index(section) + 1 : order.index(block.section) + 1]
        salt = b"".join(keys.get(each, b"") for each in entered)
        parts.append(salt + b"\0" + block.segment.text)
        section = block.section
    return running(keys["tools"], parts)


def _sizes(blocks: Sequence[Block]) -> list[int]:
    total = 0
    found: list[int] = []
    for block in blocks:
        total += block.segment.tokens
        found.append(total)
    return found
