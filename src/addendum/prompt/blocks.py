"""The neutral prompt: declarations, prompt text, and blocks in order.

A block is the unit that is rendered once and kept. Its key, the seq of the event it comes from
and its part of it, names the same content for as long as an epoch lasts; wire modules keep
the encoded bytes under it.

There are many of them: the garbage collector need not look at what can be part of no cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from addendum.log.events import RequestContext
from addendum.log.values import Media, ToolSchema

Key: TypeAlias = tuple[int, int]

Purpose: TypeAlias = Literal[
    "human",
    "tail",
    "announcement",
    "server",
    "context",
    "summary",
    "instruction",
    "prompt",
    "answer",
]


class _Keyed(Struct, frozen=True, gc=False):
    """What every block has.

    Attributes:
        seq: Seq of the event it comes from; -1 for the prompt in front.
        part: Its number within that event.
    """

    seq: int
    part: int

    @property
    def key(self) -> Key:
        """Its identity."""
        return self.seq, self.part


class Text(_Keyed, frozen=True, gc=False):
    """Text under a role.

    Attributes:
        role: `user`, `assistant` or `system`.
        text: What is sent.
        purpose: What it is there for.
        scoped: Whether the provider clears it at the next user message.
        media: Files behind the text, on wires whose results take none.
    """

    role: Literal["user", "assistant", "system"]
    text: str
    purpose: Purpose
    scoped: bool = False
    media: tuple[Media, ...] = ()


class Result(_Keyed, frozen=True, gc=False):
    """The result of a call; its files stand behind its text."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()


class Use(_Keyed, frozen=True, gc=False):
    """A call, rendered from the log's real form; `arguments` is a JSON object's text."""

    call_id: str
    name: str
    arguments: str


class Native(_Keyed, frozen=True, gc=False):
    """An item of the wire's own, sent back as it came.

    Attributes:
        raw: One JSON value.
        kind: Its `type`, where it has one.
        unpaired: Whether the reasoning that led to it is left out.
        reasons: Whether reasoning stands inside it, or stood there before it was left out.
    """

    raw: Raw
    kind: str
    unpaired: bool = False
    reasons: bool = False


class Change(_Keyed, frozen=True, gc=False):
    """A tool addition or removal told natively.

    Attributes:
        name: The tool.
        added: Addition or removal.
        definition: The definition, where it is told by value.
    """

    name: str
    added: bool
    definition: ToolSchema | None = None


Block: TypeAlias = Text | Result | Use | Native | Change


class Marks(Struct, frozen=True):
    """Where cache marks stand.

    Attributes:
        tools: Whether the last immediate declaration is marked.
        system: Indices of marked prompt texts.
        blocks: Indices of marked blocks, in order; the moved tail is not counted.
    """

    tools: bool = False
    system: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()


class Prompt(Struct, frozen=True):
    """All that one request says, in the provider's cache order.

    Attributes:
        context: What the epoch renders with.
        tools: Declarations; `defer_loading` says which are withheld.
        system: Prompt texts: static, conversation.
        settled: Blocks that never change while `chain` stays the same. The list may grow behind
            `count` when a later request is projected.
        count: How many of `settled` belong to this request.
        open: Blocks behind them.
        tail: This turn's instructions, where they are sent for the turn only.
        tail_at: Index of the block that the tail stands in front of.
        marks: Cache marks.
        chain: Identity of the settled list.
        cache_key: Digest of head and static text, the same in every conversation.
        changes: Whether a block tells a change natively.
        images: Whether a block holds an image, on wires whose cache asks for that.
    """

    context: RequestContext
    tools: tuple[ToolSchema, ...]
    system: tuple[Text, ...]
    settled: list[Block]
    count: int
    open: tuple[Block, ...]
    tail: Text | None
    tail_at: int
    marks: Marks
    chain: int
    cache_key: str
    changes: bool = False
    images: bool = False

    @property
    def blocks(self) -> Sequence[Block]:
        """All blocks in order, without the moved tail."""
        return [*self.settled[: self.count], *self.open]
