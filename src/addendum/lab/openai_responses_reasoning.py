"""Encrypted reasoning: the lab's seal, and what becomes of it when it is sent back.

A seal holds what the model thought, the model, and a digest of the prefix in front. On models that
bind reasoning to the prefix, an item behind a changed prefix, or of another model, is left out and
reported in `input_transformations`; elsewhere one of another model is refused. Reasoning counts as
its text. One without encrypted content is an id of a stored item, and nothing is stored.

Source: openai-python 3.57.0 types (`InputTransformation`); OpenAI guide "Keep the prefix
unchanged"; 400 answers seen by users.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from addendum import encoding
from addendum.errors import ContentError
from addendum.lab.prefix import running
from addendum.lab.refusal import Refusal
from addendum.lab.tokens import Segment, segment

ENCRYPTED = "reasoning.encrypted_content"
"""What a request asks for to get reasoning that can be sent back."""


class Seal(msgspec.Struct, frozen=True):
    """What encrypted content holds.

    Attributes:
        model: The model that thought.
        text: What it thought.
        prefix: Digest of the prefix in front.
    """

    model: str
    text: str
    prefix: str


def seal(model: str, text: str, front: Sequence[Segment]) -> str:
    """Return the encrypted content of what a model thought behind a prompt."""
    return base64.b64encode(encoding.encode(Seal(model, text, _prefix(front)))).decode()


def thought(text: str) -> Segment:
    """Return the segment that reasoning with this text makes."""
    return segment("assistant", {"type": "reasoning", "text": text})


class Reader:
    """Reads the reasoning of one request.

    Args:
        model: The model's id.
        bound: Whether it binds reasoning to the prefix.

    Attributes:
        dropped: What was left out, in the shape of `input_transformations`.
    """

    def __init__(self, model: str, *, bound: bool) -> None:
        self.dropped: list[dict[str, Any]] = []
        self._model = model
        self._bound = bound

    def read(self, item: dict[str, Any], front: Sequence[Segment]) -> Segment | None:
        """Return what the model reads of a reasoning item, or None if it is left out.

        Args:
            item: The item.
            front: All that the model reads in front of it.

        Raises:
            Refusal: It cannot be read.
        """
        ident, content = str(item.get("id", "")), item.get("encrypted_content")
        if content is None:
            raise Refusal(
                f"Item with id '{ident}' not found. Items are not persisted when `store` is set to"
                " false. Try again with `store` set to true, or remove this item from your input.",
                status=404,
                param="input",
            )
        found = _opened(content)
        if found is None or (found.model != self._model and not self._bound):
            raise Refusal(
                f"The encrypted content for item {ident} could not be verified.",
                code="invalid_encrypted_content",
                param="input",
            )
        if self._bound:
            reason = "model_mismatch" if found.model != self._model else ""
            if not reason and found.prefix != _prefix(front):
                reason = "prefix_mismatch"
            if reason:
                gone = {"id": ident, "action": "removed", "type": "reasoning", "reason": reason}
                self.dropped.append(gone)
                return None
        return thought(found.text)


def _prefix(front: Sequence[Segment]) -> str:
    digests = running(b"", (each.text for each in front))
    return digests[-1].hex() if digests else ""


def _opened(content: object) -> Seal | None:
    if not isinstance(content, str):
        return None
    try:
        raw = base64.b64decode(content.encode(), validate=True)
        return msgspec.convert(encoding.decode(raw), Seal)
    except (ValueError, ContentError, msgspec.ValidationError):
        return None
