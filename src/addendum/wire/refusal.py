"""A provider's error, turned into one of ours: what it said, its code, and what to do next.

Error shapes read (any of them may be missing or wrong, and the body need not be JSON):
Anthropic `{"type": "error", "error": {"type", "message", "details": {"error_code"}}}`, OpenAI
`{"error": {"message", "type", "param", "code"}}`, OpenRouter `{"error": {"code": 400, "message",
"metadata": {"raw"}}}`, Google's list of one such object, FastAPI `{"detail": ...}`, and plain
`{"error": "..."}`. Nothing of the request goes into an error.
"""

from __future__ import annotations

import re
from typing import Any

from addendum import encoding
from addendum.errors import (
    ContentError,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
)
from addendum.masking import masked
from addendum.wire.reading import array, table, text

RETRIED = frozenset({408, 409, 429})
"""4xx that say nothing against the request; they are retried like 5xx."""

MAX_MESSAGE = 500
"""Characters of the provider's own text in a message."""

MAX_BODY = 16 * 1024
"""Characters of the provider's body kept with an error."""

_REFUSED_TYPES = frozenset(
    {
        "invalid_request_error",
        "invalid_request",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "context_length_exceeded",
    }
)


def http_error(
    status: int, body: bytes, *, host: str, attempts: int = 1, credential: str | None = None
) -> ProviderError:
    """Return the error for an HTTP status that is not 2xx.

    Args:
        status: The HTTP status.
        body: The response's body, or its beginning.
        host: Who answered.
        attempts: How often the request was sent.
        credential: Name of the variable that holds the key, for the advice on 401 and 403.

    Returns:
        `ProviderBusy` for 408, 409, 429 and 5xx, else `ProviderRefused`; `refusal_text` gives its
        body.
    """
    code, said = _described(_decoded(body), body)
    busy = status in RETRIED or status >= 500
    times = f", {attempts} times" if attempts > 1 else ""
    message = _sentence(
        f"{host} answered {status}{f' ({code})' if code else ''}{times}",
        said,
        "wait and try again" if busy else _advice(status, credential, f"{code} {said}"),
    )
    kind = ProviderBusy if busy else ProviderRefused
    return _keep(kind(message, status=status, code=code), body)


def stream_error(body: bytes) -> ProviderError:
    """Return the error for one that a provider reports inside a stream.

    A numeric code in it decides as an HTTP status would; otherwise its type does. A type that is
    not known to blame the request counts as the provider's own trouble.

    Args:
        body: The event's data, an error object as in an HTTP body.
    """
    value = _decoded(body)
    error = _error_object(value)
    code, said = _described(value, body)
    status = _number(error.get("code")) or _number(error.get("status"))
    if status is None:
        refused = code in _REFUSED_TYPES or text(error.get("type")) in _REFUSED_TYPES
    else:
        refused = status < 500 and status not in RETRIED
    message = _sentence(
        f"the provider broke off its answer{f' ({code})' if code else ''}",
        said,
        "correct what it names before sending it again" if refused else "wait and try again",
    )
    kind = ProviderRefused if refused else ProviderBusy
    return _keep(kind(message, status=status, code=code), body)


def refusal_text(error: ProviderError) -> str:
    """Return the body that came with an error, cut, to look for names of fields; else ''."""
    return text(vars(error).get("body"))


def too_large(error: ProviderError) -> bool:
    """Say whether a provider refused a request because it is larger than what the model takes."""
    said = f"{error.code} {refusal_text(error)}"
    return isinstance(error, ProviderRefused) and (
        error.status == 413 or _TOO_LARGE.search(said) is not None
    )


def one_line(said: str, limit: int = MAX_MESSAGE) -> str:
    """Return foreign text as one printable line of at most `limit` characters.

    Credentials are replaced before anything is cut off: no part of one is left.
    """
    said = masked(said)[: 4 * limit]
    line = " ".join("".join(c if c.isprintable() else " " for c in said).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _keep(error: ProviderError, body: bytes) -> ProviderError:
    vars(error)["body"] = encoding.clean(body[: 4 * MAX_BODY].decode("utf-8", "replace"))[:MAX_BODY]
    return error


def _sentence(head: str, said: str, advice: str) -> str:
    said = one_line(said).rstrip(".;: ")
    return f"{head}: {said}; {advice}" if said else f"{head}; {advice}"


def _advice(status: int, credential: str | None, said: str) -> str:
    for words, advice in _ADVICE:
        if words.search(said):
            return advice
    if status in (401, 403):
        return f"check the key in {credential}" if credential else "check the API key"
    if status == 402:
        return "check the account's balance"
    if status == 404:
        return "check the model's name and the base URL"
    if status == 413:
        return "the request is too large: compact the session"
    if 300 <= status < 400:
        return "set the base URL to the address that it moved to"
    return "correct what it names before sending it again"


# Seen: "prompt is too long: N tokens > M maximum" (Claude), context_length_exceeded (OpenAI),
# "Input is too long for requested model" (Bedrock), "The input token count ... exceeds the maximum
# number of tokens allowed" (Gemini); ExpiredTokenException; "does not support tools", "doesn't
# support tool use"; model_not_found, "The provided model identifier is invalid".
_TOO_LARGE = re.compile(
    r"prompt is too long|context_length_exceeded|input is too long|token count.*exceeds",
    re.IGNORECASE,
)
_ADVICE = (
    (_TOO_LARGE, "the request is too large: compact the session"),
    (re.compile(r"expired", re.IGNORECASE), "renew the credentials and try again"),
    (
        re.compile(r"(?:not|n't) support tool|tool use is not supported", re.IGNORECASE),
        "use another model, or an agent without tools",
    ),
    (
        re.compile(r"model_not_found|model identifier is invalid", re.IGNORECASE),
        "check the model's name, and the region that it is served in",
    ),
)


def _decoded(body: bytes) -> Any:
    try:
        value = encoding.decode(body)
    except ContentError:
        return None
    listed = array(value)
    return listed[0] if listed else value


def _error_object(value: Any) -> dict[str, Any]:
    outer = table(value)
    inner = table(outer.get("error"))
    return dict(inner or outer)


def _described(value: Any, body: bytes) -> tuple[str | None, str]:
    """Return the provider's code and its text."""
    error = _error_object(value)
    codes = (
        table(error.get("details")).get("error_code"),
        error.get("code"),
        error.get("type"),
        error.get("status"),
    )
    code = next((one_line(c, 100) for c in codes if isinstance(c, str) and c.strip()), None)
    said = text(error.get("message")) or text(error.get("error")) or text(error.get("detail"))
    # OpenRouter's own message is "Provider returned error"; the reason stands in the metadata.
    raw = text(table(error.get("metadata")).get("raw"))
    if raw:
        said = f"{said}: {raw}" if said else raw
    return code, said or body[: 4 * MAX_MESSAGE].decode("utf-8", "replace")


def _number(value: Any) -> int | None:
    """Return an HTTP error status given as a number or as its digits."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
        return value
    return None
