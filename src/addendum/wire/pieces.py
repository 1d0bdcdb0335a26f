"""Encoded pieces that only grow at the end, joined as far as they are settled.

A request is one join. So that it joins hundreds of parts and not ten thousands, pieces are put
together in chunks once; the few that a request changes (to carry a mark) are cut out of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from addendum.log.values import ToolSchema

CHUNK = 128
"""Pieces in a chunk."""

Edit: TypeAlias = Callable[[bytes], bytes]

SHARED = 32 * 1024 * 1024
"""Bytes of encoded declarations that a process keeps; beyond it, it begins anew."""


class Declarations:
    """Encodes declarations once in a process: a head is the same in all its conversations.

    Args:
        encode: Encodes one.
    """

    def __init__(self, encode: Callable[[ToolSchema], bytes]) -> None:
        self._encode = encode
        self._known: dict[tuple[str, str, bytes, bool | None], bytes] = {}
        self._size = 0

    def one(self, tool: ToolSchema) -> bytes:
        """Return one encoded definition, without keeping it."""
        return self._encode(tool)

    def __call__(self, tools: Iterable[ToolSchema]) -> tuple[list[bytes], int]:
        """Return the encoded declarations in order, and how many were not known."""
        entries: list[bytes] = []
        fresh = 0
        for tool in tools:
            key = (tool.name, tool.description, bytes(tool.parameters), tool.defer_loading)
            entry = self._known.get(key)
            if entry is None:
                entry = self._encode(tool)
                fresh += 1
                self._size += len(entry)
                if self._size > SHARED:
                    self._known, self._size = {}, len(entry)
                self._known[key] = entry
            entries.append(entry)
        return entries, fresh


class Pieces:
    """A growing row of encoded pieces."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._ends: list[int] = []
        self._rest: list[bytes] = []

    def __len__(self) -> int:
        return len(self._chunks) * CHUNK + len(self._rest)

    def append(self, piece: bytes) -> None:
        """Add a piece at the end."""
        self._rest.append(piece)
        if len(self._rest) == CHUNK:
            end = 0
            for each in self._rest:
                end += len(each)
                self._ends.append(end)
            self._chunks.append(b"".join(self._rest))
            self._rest = []

    def parts(self, edits: Mapping[int, Edit]) -> list[bytes]:
        """Return all pieces in order, in as few parts as there are.

        Args:
            edits: What to do to single pieces, by index.
        """
        parts = list(self._chunks)
        rest = list(self._rest)
        whole = len(self._chunks) * CHUNK
        for index in sorted(edits, reverse=True):
            if index >= whole:
                rest[index - whole] = edits[index](rest[index - whole])
            else:
                at = index // CHUNK
                start = self._ends[index - 1] if index % CHUNK else 0
                end = self._ends[index]
                # From the back, so that what stands in front keeps its place.
                chunk = parts[at]
                parts[at] = chunk[:start] + edits[index](chunk[start:end]) + chunk[end:]
        return parts + rest
