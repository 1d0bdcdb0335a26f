"""Thought signatures of the lab's Gemini: opaque to clients, bound to the model that made them."""

from __future__ import annotations

import base64
import hashlib
import hmac

STAND_IN = "skip_thought_signature_validator"
"""What the real provider takes in place of a signature, on the first call of a step."""

_KEY = b"the lab's signatures; they keep no secret"


def sign(model: str, seed: bytes) -> str:
    """Return the signature of an answer."""
    text = hashlib.sha256(seed).digest()[:12]
    return base64.b64encode(text + _mac(model, text)).decode()


def is_own(signature: str, model: str) -> bool:
    """Say whether a signature was made here, for this model."""
    try:
        raw = base64.b64decode(signature.encode(), validate=True)
    except ValueError:
        return False
    return hmac.compare_digest(raw[12:], _mac(model, raw[:12]))


def _mac(model: str, text: bytes) -> bytes:
    return hmac.new(_KEY, model.encode() + b"\0" + text, hashlib.sha256).digest()
