"""A provider's error, turned into one of ours: what it said, its code, and what to do next.

One classifier, wherever the error stands: behind a status, in a body with status 200, in the first
event or a later one, in a reason to end. What it says decides, then its status, then its type.
Overload and trouble of the provider's own are `ProviderBusy`, and the request may be sent again.
Whatever waiting does not cure is `ProviderRefused`: that counts for what is spent, too.

Error shapes read (any of them may be missing or wrong, and the body need not be JSON):
Anthropic `{"type": "error", "error": {"type", "message", "details": {"error_code"}}}`, OpenAI
`{"error": {"message", "type", "param", "code"}}`, OpenRouter `{"error": {"code": 400, "message",
"metadata": {"raw"}}}`, Google's list of one such object, FastAPI `{"detail": ...}`, and plain
`{"error": "..."}`. Nothing of the request goes into an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from addendum import encoding
from addendum.errors import (
    ContentError,
    ProviderBusy,
    ProviderError,
    ProviderRefused,
)
from addendum.lines import one_line
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
        "permission_error",
        "not_found_error",
        "request_too_large",
        "context_length_exceeded",
        # AWS.
        "validationexception",
        "accessdeniedexception",
        "resourcenotfoundexception",
        # Responses: openai-python 3.57.0, `ResponseError.code`.
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "image_content_policy_violation",
        "image_parse_error",
        "image_too_large",
        "image_too_small",
        "image_file_too_large",
        "image_file_not_found",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "invalid_image",
        "invalid_image_format",
        "invalid_image_mode",
        "invalid_image_url",
        "invalid_base64_image",
    }
)

# What is spent: OpenAI and those who copy it, Anthropic, Moonshot, DashScope, Z.ai, Codex.
_SPENT_CODES = frozenset(
    "insufficient_quota billing_error billing_hard_limit_reached billing_not_active"
    " exceeded_current_quota_error quota_exceeded usage_limit_reached usage_not_included"
    " insufficient_balance insufficient_credits arrearage access_terminated"
    " servicequotaexceededexception 1112 1113 1308 1309 1310".split()
)
_SPENT = re.compile(
    r"exceeded your current quota|check your plan and billing|credit balance is too low"
    r"|insufficient (?:account )?(?:balance|credits?|funds|quota)|used all available credits"
    r"|monthly (?:included credits|spending limit)|(?:billing|spend(?:ing)?) (?:hard )?limit"
    r"|api usage limits|out of credits|recharge|account is in good standing"
    r"|too many tokens per day",
    re.IGNORECASE,
)
_SOON = re.compile(r"(?:retry|try again) (?:in|after) [\d.]+ ?(?:ms|s|m)", re.IGNORECASE)
"""Gemini says the same words of a limit a minute, and when it is over."""


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
        `ProviderBusy` for 408, 409, 429 and 5xx, unless it says that something is spent or that a
        template refuses the history; else `ProviderRefused`. `refusal_text` gives its body.
    """
    times = f", {attempts} times" if attempts > 1 else ""
    return _error(
        body,
        lambda code: f"{host} answered {status}{f' ({code})' if code else ''}{times}",
        status,
        credential,
    )


def stream_error(body: bytes) -> ProviderError:
    """Return the error for one that a provider reports inside an answer.

    A numeric code in it decides as an HTTP status would; otherwise its type does. A type that is
    not known to blame the request counts as the provider's own trouble.

    Args:
        body: The event's data, an error object as in an HTTP body.
    """
    error = _error_object(_decoded(body))
    return _error(
        body,
        lambda code: f"the provider broke off its answer{f' ({code})' if code else ''}",
        _number(error.get("code")) or _number(error.get("status")),
    )


def _error(
    body: bytes,
    head: Callable[[str | None], str],
    status: int | None,
    credential: str | None = None,
) -> ProviderError:
    """Classify an error: the one place that says what it is, and whether to send again."""
    value = _decoded(body)
    error = _error_object(value)
    code, said = _described(value, body)
    named = (*_codes(error), error.get("code"))
    codes = {str(each).lower().rpartition("#")[2] for each in named if each}
    spent = (
        status == 402
        or bool(codes & _SPENT_CODES)
        or (_SPENT.search(said) is not None and status not in (408, 409))
    )
    if spent and "insufficient_quota" not in codes and (_asks_wait(error) or _SOON.search(said)):
        spent = False
    if spent:
        busy = False
    elif status is not None:
        # Servers say with a 500 that their template refuses a history: so it will again.
        busy = (status in RETRIED or status >= 500) and not _TEMPLATE.search(said)
    else:
        busy = not codes & _REFUSED_TYPES
    if busy:
        advice = "wait and try again"
    elif spent:
        advice = "waiting does not help: check the account's balance and its limits"
    else:
        advice = _advice(status or 400, credential, f"{code} {said}")
    kind = ProviderBusy if busy else ProviderRefused
    message = _sentence(head(code), said, advice)
    return _keep(kind(message, status=status, code=code, again=busy), body)


# ggml-org/llama.cpp#19851, eclipse-theia/theia#17104, sipeed/picoclaw#207; jundot/omlx#1997,
# scouzi1966/maclocal-api#67, brontoguana/krasis#10, gonka-ai/gonka#985,
# cubist38/mlx-openai-server#205
_TEMPLATE = re.compile(
    r"jinja exception|raise_exception\(|template ?exception|template render|roles must alternate"
    r"|unexpected role|tool call id was|message has tool role|cannot unmarshal",
    re.I,
)


def asked_wait(error: ProviderError) -> float | None:
    """Return the seconds that an error's body asks to wait, if it says so in a form we know."""
    return _asks_wait(_error_object(_decoded(refusal_text(error).encode())))


def _asks_wait(error: Mapping[str, Any]) -> float | None:
    """Google's `RetryInfo`, and fields that gateways write."""
    for detail in array(error.get("details")):
        delay = text(table(detail).get("retryDelay"))
        if re.fullmatch(r"[\d.]{1,12}s", delay):
            return seconds(delay[:-1])
    for name in ("retry_after", "resets_in_seconds"):
        value = error.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return seconds(value)
    return None


def seconds(value: str | float) -> float | None:
    """Return a number of seconds, given as such or as text; None if it is no time to wait.

    A number beyond all floats is a very long time and no error.
    """
    if isinstance(value, str) and not _DIGITS.fullmatch(value.strip()):
        return None
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return number if number >= 0 else None


_DIGITS = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+")


def refusal_text(error: ProviderError) -> str:
    """Return the body that came with an error, cut, to look for names of fields; else ''."""
    return text(vars(error).get("body"))


_BLAMES = frozenset({"invalid_request_error", "invalid_request", "validationexception"})
"""Codes that blame what a request says, of errors that come without a status."""


def refuses_form(error: ProviderError) -> bool:
    """Say whether a request was refused for what it says, so that another form may be taken.

    A template refuses with 500; inside an answer with status 200 there is a code alone.
    """
    if not isinstance(error, ProviderRefused) or _SPENT.search(refusal_text(error)):
        return False
    if error.status is None:
        return (error.code or "").lower().rpartition("#")[2] in _BLAMES
    return error.status in (400, 422, 500)


def too_large(error: ProviderError) -> bool:
    """Say whether a provider refused a request because it is larger than what the model takes."""
    said = f"{error.code} {refusal_text(error)}"
    return isinstance(error, ProviderRefused) and (
        error.status == 413 or _TOO_LARGE.search(said) is not None
    )


def _keep(error: ProviderError, body: bytes) -> ProviderError:
    text = encoding.clean(body[: 4 * MAX_BODY].decode("utf-8", "replace"))
    # Whoever logs an error logs all that it holds. Masked first: no half of a key is left.
    vars(error)["body"] = masked(text)[:MAX_BODY]
    if error.code is not None:
        error.code = masked(error.code)
    return error


def _sentence(head: str, said: str, advice: str) -> str:
    said = one_line(said, MAX_MESSAGE).rstrip(".;: ")
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
    # Behind a status that is none of an answer, an error may still be framed as an event.
    event = _EVENT.search(body) if body.lstrip()[:1] not in (b"{", b"[") else None
    try:
        value = encoding.decode(body if event is None else event.group(1))
    except ContentError:
        return None
    listed = array(value)
    return listed[0] if listed else value


_EVENT = re.compile(rb"^data:[ \t]*(\{.*\})[ \t\r]*$", re.MULTILINE)


def _error_object(value: Any) -> dict[str, Any]:
    outer = table(value)
    inner = table(outer.get("error"))
    return dict(inner or outer)


def _codes(error: Mapping[str, Any]) -> list[str]:
    """Return what names an error, the most exact first."""
    codes = (
        table(error.get("details")).get("error_code"),
        error.get("code"),
        error.get("type"),
        error.get("__type"),
        error.get("status"),
    )
    return [code for code in codes if isinstance(code, str) and code.strip()]


def _described(value: Any, body: bytes) -> tuple[str | None, str]:
    """Return the provider's code and its text."""
    error = _error_object(value)
    code = next((one_line(each, 100) for each in _codes(error)), None)
    fields = ("message", "error", "detail", "msg")
    said = next((said for name in fields if (said := text(error.get(name)))), "")
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
