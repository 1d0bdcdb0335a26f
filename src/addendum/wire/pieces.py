"""Encoded pieces that only grow at the end, joined as far as they are settled.

A request is one join. So that it joins hundreds of parts and not ten thousands, pieces are put
together in chunks once; the few that a request changes (to carry a mark) are cut out of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

CHUNK = 128
"""Pieces in a chunk."""

Edit: TypeAlias = Callable[[bytes], bytes]


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
