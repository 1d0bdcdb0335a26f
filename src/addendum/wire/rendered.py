"""From a prompt to encoded pieces, once for every wire; a wire's dialect says what a piece is.

A block is encoded once. The settled part is kept as ready pieces, so a request is one join around
what is new; what a request changes (a mark, the turn's instructions) is spliced into the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Block, Key, Native, Prompt, Text, Use
from addendum.wire.pieces import Declarations, Edit, Pieces

Group: TypeAlias = Hashable
"""What keeps neighbours in one message of the wire."""


class Dialect(Protocol):
    """How one wire says what a prompt holds.

    Every method is a function of its arguments; what a dialect remembers of blocks that it has
    encoded names the same content for as long as a renderer lives.
    """

    def group(self, block: Block) -> Group:
        """Return what a block shares with the neighbours that it is said together with."""
        ...

    def opening(self, block: Block, last: Group | None) -> bytes:
        """Return what stands in front of a block.

        Args:
            block: The block.
            last: The group of the one in front of it; None where it is the first.
        """
        ...

    def encode(self, blocks: Sequence[Block]) -> bytes:
        """Return a block; more than one where `together` joined them.

        Raises:
            UnsupportedContent: The wire cannot say it.
        """
        ...

    def prompt(self, texts: Sequence[Text]) -> list[bytes]:
        """Return the prompt's texts in pieces, each of which may carry a mark."""
        ...

    def marked(self, piece: bytes, mark: bytes) -> bytes:
        """Return the piece of a block with a mark on it."""
        ...

    def behind(self, tail: bytes, piece: bytes) -> bytes:
        """Return the piece of a human message with this turn's instructions in front of it."""
        ...


Together: TypeAlias = Callable[[Block, Block], bool]
"""Says whether two blocks that follow each other are encoded as one piece."""


class Rendered:
    """What of a session's requests is encoded on one wire; keeps that of the current chain.

    Args:
        dialect: How the wire says blocks.
        declarations: Encodes definitions.
        together: Which neighbours make one piece; each block is its own if None.

    Attributes:
        encoded: Blocks, prompt texts and declarations encoded so far; for tests that count them.
            Items sent back as they came are not.
    """

    def __init__(
        self, dialect: Dialect, declarations: Declarations, together: Together | None = None
    ) -> None:
        self.encoded = 0
        self._dialect = dialect
        self._declarations = declarations
        self._together = together
        self._declared: tuple[tuple[ToolSchema, ...], bytes, bytes] | None = None
        self._prompt: tuple[tuple[Text, ...], list[bytes]] = ((), [])
        self._tail: tuple[Text, bytes] | None = None
        self._begin(-1)

    def _begin(self, chain: int) -> None:
        self._chain = chain
        self._pieces = Pieces()
        self._taken = 0
        self._places: list[int] = []
        self._last: Group | None = None
        self._open: dict[Key | tuple[Key, ...], bytes] = {}

    # -- in front of the messages -----------------------------------------------------------

    def tools(self, tools: tuple[ToolSchema, ...]) -> tuple[bytes, bytes]:
        """Return the declarations, joined: up to the last immediate one, and what is behind it.

        A mark on the tools stands at the end of the first.
        """
        if self._declared is None or self._declared[0] is not tools:
            entries, fresh = self._declarations(tools)
            self.encoded += fresh
            last = max((at for at, tool in enumerate(tools) if not tool.defer_loading), default=-1)
            front, rest = entries[: last + 1], entries[last + 1 :]
            between = b"," if front and rest else b""
            self._declared = (tools, b",".join(front), between + b",".join(rest))
        return self._declared[1], self._declared[2]

    def prompt(self, texts: tuple[Text, ...]) -> list[bytes]:
        """Return the prompt's texts in pieces; the list is the caller's own."""
        if self._prompt[0] is not texts:
            self.encoded += len(texts)
            self._prompt = (texts, self._dialect.prompt(texts))
        return [*self._prompt[1]]

    # -- messages ---------------------------------------------------------------------------

    def messages(self, prompt: Prompt, mark: bytes = b"") -> tuple[list[bytes], Group | None]:
        """Return the blocks, with marks and this turn's instructions where they belong.

        Args:
            prompt: What to say.
            mark: What a mark is.

        Returns:
            Bytes to be joined, and the group of the last block; None if there is nothing.
        """
        if prompt.chain != self._chain or prompt.count < self._taken:
            self._begin(prompt.chain)
        for block, encoded, run in self._encoded(prompt.settled[self._taken : prompt.count]):
            if self._together is not None:
                self._places.extend([len(self._pieces)] * run)
            self._pieces.append(self._dialect.opening(block, self._last) + encoded)
            self._last = self._dialect.group(block)
        self._taken = prompt.count
        last, settled = self._last, len(self._pieces)
        opened: list[bytes] = []
        places: list[int] = []
        fresh: dict[Key | tuple[Key, ...], bytes] = {}
        for block, encoded, run in self._encoded(prompt.open, fresh):
            places.extend([len(opened)] * run)
            opened.append(self._dialect.opening(block, last) + encoded)
            last = self._dialect.group(block)
        self._open = fresh

        def place(index: int) -> int:
            """Return the piece that a block stands in."""
            if index >= prompt.count:
                return settled + places[index - prompt.count]
            return index if self._together is None else self._places[index]

        edits: dict[int, Edit] = {}
        for index in prompt.marks.blocks:
            edits[place(index)] = partial(self._dialect.marked, mark=mark)
        if prompt.tail is not None:
            tail = self._instructions(prompt.tail)
            run, start = self._around(prompt)
            if len(run) > 1:
                at = place(start)
                edits[at] = partial(self._instead, run, edits.get(at))
            elif prompt.tail_at >= prompt.count + len(places):
                opened.append(self._dialect.opening(prompt.tail, last) + tail)
                last = self._dialect.group(prompt.tail)
            else:
                at = place(prompt.tail_at)
                edits[at] = partial(self._with_tail, tail, edits.get(at))
        for at in [at for at in edits if at >= settled]:
            opened[at - settled] = edits.pop(at)(opened[at - settled])
        return self._pieces.parts(edits) + opened, last

    def _instructions(self, tail: Text) -> bytes:
        if self._tail is None or self._tail[0] != tail:
            self.encoded += 1
            self._tail = (tail, self._dialect.encode((tail,)))
        return self._tail[1]

    def _around(self, prompt: Prompt) -> tuple[list[Block], int]:
        """Return the blocks that make one message with this turn's instructions, those among them.

        And the index of the first one of the history.
        """
        tail, start = prompt.tail, prompt.tail_at
        if tail is None or self._together is None:
            return [], start
        end = prompt.count + len(prompt.open)

        def block(index: int) -> Block:
            settled = index < prompt.count
            return prompt.settled[index] if settled else prompt.open[index - prompt.count]

        run: list[Block] = [tail]
        while start > 0 and self._together(block(start - 1), tail):
            start -= 1
            run.insert(0, block(start))
        behind = prompt.tail_at
        while behind < end and self._together(tail, block(behind)):
            run.append(block(behind))
            behind += 1
        return run, start

    def _instead(self, run: Sequence[Block], edit: Edit | None, piece: bytes) -> bytes:
        """Return the piece of a run with another block in it."""
        self.encoded += 1
        piece = (b"," if piece[:1] == b"," else b"") + self._dialect.encode(run)
        return piece if edit is None else edit(piece)

    def _with_tail(self, tail: bytes, edit: Edit | None, piece: bytes) -> bytes:
        return self._dialect.behind(tail, piece if edit is None else edit(piece))

    def _encoded(
        self,
        blocks: Sequence[Block],
        fresh: dict[Key | tuple[Key, ...], bytes] | None = None,
    ) -> Iterator[tuple[Block, bytes, int]]:
        """Yield the first block of each piece, the piece, and how many blocks it holds.

        Args:
            blocks: The blocks.
            fresh: Keeps what may be asked for again.
        """
        place, known = 0, self._open
        while place < len(blocks):
            block, run = blocks[place], 1
            if self._together is not None:
                while place + run < len(blocks) and self._together(block, blocks[place + run]):
                    run += 1
            piece = blocks[place : place + run]
            place += run
            key: Key | tuple[Key, ...] = ()
            if known or fresh is not None:
                key = block.key if run == 1 else tuple(each.key for each in piece)
            encoded = known.get(key)
            if encoded is None:
                self.encoded += not isinstance(block, Native)
                encoded = self._dialect.encode(piece)
            if fresh is not None:
                fresh[key] = encoded
            yield block, encoded, run


def spliced(piece: bytes, mark: bytes, closing: int = 1) -> bytes:
    """Return a JSON value with a mark behind its last field.

    Args:
        piece: The value.
        mark: The field, with its comma in front.
        closing: Brackets and braces at its end that stand behind the mark.
    """
    return piece[:-closing] + mark + piece[-closing:]


def within(opening: bytes, tail: bytes, piece: bytes) -> bytes:
    """Return the piece of a human message with a block in front, both in one message.

    Args:
        opening: How a user's message begins on this wire.
        tail: The block.
        piece: The piece, with what closes the message before.
    """
    place = piece.find(opening)
    if 0 <= place <= 4:
        cut = place + len(opening)
        return piece[:cut] + tail + b"," + piece[cut:]
    # It continues a user message: results of an interrupted turn, or an earlier try.
    return b"," + tail + piece


def speaker(block: Block, model: str) -> str:
    """Return the role of a block where only a user and a model speak.

    Args:
        block: The block.
        model: The wire's word for the model.
    """
    if isinstance(block, Text):
        return model if block.role == "assistant" else "user"
    return model if isinstance(block, Native | Use) else "user"


def turn_opening(role: str, last: Group | None, holder: bytes) -> bytes:
    """Return what stands in front of a block where neighbours of one role share a message.

    Args:
        role: The block's role.
        last: The role of the one in front; None where it is the first.
        holder: Field that holds a message's blocks.
    """
    if role == last:
        return b","
    opening = b'{"role":"' + role.encode() + b'","' + holder + b'":['
    return opening if last is None else b"]}," + opening
