"""Signed thinking: the lab's seal, and what becomes of a block that is sent back.

A seal holds the thinking's text (a real signature hides it as well: a block may come back without
its text), the model that thought it, a digest of the prefix in front and the block before it. On
every model a block whose text was edited is refused, and a block of another model is left out
without an error. On models that bind thinking to the prefix, a block behind a changed prefix or
behind a gap in the chain is refused, or left out where the request asks for that.

The prefix is `tools` outside deferral, `system` and the messages in front, thinking left out;
marks, key order and deferred tools that nothing refers to do not count. Thinking may be removed
oldest first, from the end, or as a whole. A turn-scoped system message counts as long as it is
left in place.

Source: platform.claude.com, "Preserved thinking" and "Prefix checks on thinking blocks".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from addendum import encoding
from addendum.errors import ContentError
from addendum.lab.anthropic_render import late_tools_in_use, references
from addendum.lab.anthropic_shapes import Asked, Json
from addendum.lab.facts import ClaudeModel
from addendum.lab.refusal import Refusal
from addendum.lab.tokens import Segment, segment, unmarked

_KEY = b"the lab's seal; it keeps no secret"


class Seal(msgspec.Struct, frozen=True):
    """What a signature says.

    Attributes:
        model: The model that thought.
        text: What it thought.
        omitted: The block was returned without its text.
        prefix: Digest of the prefix in front.
        before: Id of the valid block before it, or empty.
    """

    model: str
    text: str
    omitted: bool
    prefix: str
    before: str

    @property
    def id(self) -> str:
        """What the next block names this one by."""
        return encoding.digest(encoding.encode(self))[:16]

    @property
    def read(self) -> Segment:
        """What a model reads of the block."""
        return thought(self.text)


def thought(text: str) -> Segment:
    """Return the segment that thinking with this text makes."""
    return segment("assistant", {"type": "thinking", "thinking": text})


Read: TypeAlias = Mapping[tuple[int, int], Segment]
"""What a model reads of thinking, by message and block."""


class Verdicts(msgspec.Struct, frozen=True):
    """What becomes of the thinking in a request.

    Attributes:
        read: What the model reads, by (message, block); a block that is left out is absent.
        dropped: What was left out and why, in the shape of `input_transformations`.
        last: Id of the last valid block, or empty.
        prefix: Digest of the whole request, which the next block is bound to.
    """

    read: Read
    dropped: tuple[Json, ...]
    last: str
    prefix: str


def sign(seal: Seal) -> str:
    """Return the signature of a seal."""
    payload = encoding.encode(seal)
    mac = hmac.new(_KEY, payload, hashlib.sha256).digest()
    return base64.b64encode(mac + payload).decode()


def unseal(signature: object) -> Seal | None:
    """Return what a signature of the lab says, or None if it is none."""
    if not isinstance(signature, str):
        return None
    try:
        raw = base64.b64decode(signature.encode(), validate=True)
        mac, payload = raw[:32], raw[32:]
        if not hmac.compare_digest(mac, hmac.new(_KEY, payload, hashlib.sha256).digest()):
            return None
        return msgspec.convert(encoding.decode(payload), Seal)
    except (ValueError, ContentError, msgspec.ValidationError):
        return None


def judge(asked: Asked, name: str, model: ClaudeModel) -> Verdicts:
    """Check every thinking block of a request.

    Args:
        asked: The request.
        name: The model's id without a date.
        model: Its facts.

    Raises:
        Refusal: A signature is not the lab's, a text was edited, or a block is bound to a
            different prefix and the request does not ask to drop it.
    """
    binding: Json = asked.thinking.get("block_binding", {})
    drop = binding.get("prefix_mismatch_behavior") == "drop_block"
    late = late_tools_in_use(asked)
    state = hashlib.sha256()
    for kind, values in (("tools", asked.tools), ("system", asked.system)):
        for value in values:
            if not value.get("defer_loading"):
                state.update(_counted(kind, value))
    read: dict[tuple[int, int], Segment] = {}
    dropped: list[Json] = []
    last = ""
    stripped_before = -1 if model.keeps_thinking else _last_human(asked)
    for at, message in enumerate(asked.messages):
        for number, block in enumerate(message.blocks):
            path = f"messages.{at}.content.{number}"
            if block["type"] not in ("thinking", "redacted_thinking"):
                state.update(_counted(message.role, block, late))
                continue
            seal = _verified(path, block)
            reason = None
            if seal.model != name:
                reason = "model_binding_mismatch"
            elif model.bound and (
                seal.prefix != state.hexdigest() or (last and seal.before != last)
            ):
                if not drop:
                    raise Refusal(
                        f"{path}: this `thinking` block is bound to a different conversation:"
                        " `tools`, `system` or an earlier message has changed, or an earlier"
                        " thinking block is missing"
                    )
                reason = "prefix_binding_mismatch"
            if reason is not None:
                dropped.append({"type": "thinking_dropped", "path": path, "reason": reason})
                continue
            last = seal.id
            if at > stripped_before:
                read[at, number] = seal.read
    return Verdicts(read, tuple(dropped), last, state.hexdigest())


def _verified(path: str, block: Json) -> Seal:
    if block["type"] == "redacted_thinking":
        raise Refusal(f"{path}: Invalid `data` in `redacted_thinking` block")
    seal = unseal(block["signature"])
    if seal is None:
        raise Refusal(f"{path}: Invalid `signature` in `thinking` block")
    if not seal.omitted and block["thinking"] != seal.text:
        raise Refusal(
            f"{path}: `thinking` or `redacted_thinking` blocks cannot be modified. These blocks"
            " must remain as they were in the original response."
        )
    return seal


def _counted(kind: str, value: Json, late: Mapping[str, Json] | None = None) -> bytes:
    """Return what counts of a value: without marks, whatever its key order."""
    text = encoding.canonical(unmarked(value))
    for name in references(value):
        if late and name in late:
            text += encoding.canonical(unmarked(late[name]))
    return f"{kind} {len(text)} ".encode() + text


def _last_human(asked: Asked) -> int:
    """Return the index of the last user message that is more than tool results, or -1."""
    return max(
        (
            at
            for at, message in enumerate(asked.messages)
            if message.role == "user" and any(b["type"] != "tool_result" for b in message.blocks)
        ),
        default=-1,
    )
