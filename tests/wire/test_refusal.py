from __future__ import annotations

import json
from typing import Any

import pytest

from addendum.errors import ProviderBusy, ProviderError, ProviderRefused
from addendum.lines import one_line
from addendum.wire.refusal import http_error, refusal_text, stream_error


def http(status: int, body: Any, **more: Any) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http_error(status, raw, host="api.example.com", **more)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
            "invalid_request_error",
            "no",
        ),
        (
            {"error": {"type": "t", "code": "c", "message": "m", "details": {"error_code": "d"}}},
            "d",
            "m",
        ),
        (
            {"error": {"type": "t", "code": "unknown_parameter", "message": "m"}},
            "unknown_parameter",
            "m",
        ),
        ({"error": {"type": "t", "code": None, "message": "m"}}, "t", "m"),
        (
            {
                "error": {
                    "code": 400,
                    "message": "Provider returned error",
                    "metadata": {"raw": "why"},
                }
            },
            None,
            "Provider returned error: why",
        ),
        ([{"error": {"status": "INVALID_ARGUMENT", "message": "m"}}], "INVALID_ARGUMENT", "m"),
        ({"error": "model not loaded"}, None, "model not loaded"),
        ({"detail": "nope"}, None, "nope"),
        ({"object": "error", "message": "m", "type": "BadRequestError"}, "BadRequestError", "m"),
        (b"upstream said no", None, "upstream said no"),
        (b'{"error": {"message": ', None, '{"error": {"message'),
        (b"[" * 5000, None, "[[["),
        (b'{"error": {"message": NaN}}', None, '{"error": {"message": NaN}}'),
    ],
)
def test_shapes_of_a_refusal(body: Any, code: str | None, said: str) -> None:
    error = http(400, body)
    assert isinstance(error, ProviderRefused)
    assert (error.status, error.code) == (400, code)
    head = f"api.example.com answered 400{f' ({code})' if code else ''}: {said}"
    assert str(error).startswith(head)
    assert str(error).endswith("; correct what it names before sending it again")


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "check the API key"),
        (403, "check the API key"),
        (402, "balance"),
        (404, "model's name"),
        (413, "compact the session"),
        (308, "base URL"),
        (422, "correct what it names"),
        (429, "wait and try again"),
        (500, "wait and try again"),
    ],
)
def test_the_next_step(status: int, advice: str) -> None:
    error = http(status, {})
    assert advice in str(error)
    assert isinstance(error, ProviderBusy if status in (429, 500) else ProviderRefused)


def test_the_variable_of_the_key_is_named() -> None:
    assert str(http(401, b"", credential="X_KEY")) == (
        "api.example.com answered 401; check the key in X_KEY"
    )


def test_a_message_is_one_printable_line() -> None:
    error = http(
        400, {"error": {"message": "a\nb\r\x1b]0;x\x07\u202e" + "y" * 9000, "code": "c\nd"}}
    )
    assert str(error).isprintable()
    assert error.code == "c d"
    assert len(str(error)) < 700
    assert "a b \ufffd]0;x\ufffd\ufffdyyy" in str(error)


def test_the_body_is_kept_and_cut() -> None:
    error = http(400, b'{"x":"tool_addition"}' + b"\xff\xed\xa0\x80" + b"z" * 99_999)
    assert refusal_text(error).startswith('{"x":"tool_addition"}\ufffd')
    assert len(refusal_text(error)) == 16 * 1024
    refusal_text(error).encode()
    assert refusal_text(ProviderError("made elsewhere")) == ""


@pytest.mark.parametrize(
    ("error", "kind", "status", "code"),
    [
        ({"type": "overloaded_error"}, ProviderBusy, None, "overloaded_error"),
        ({"type": "api_error"}, ProviderBusy, None, "api_error"),
        ({"type": "something_new"}, ProviderBusy, None, "something_new"),
        ({"type": "invalid_request_error"}, ProviderRefused, None, "invalid_request_error"),
        ({"type": "invalid_request_error", "code": "x"}, ProviderRefused, None, "x"),
        ({"code": 429, "message": "m"}, ProviderBusy, 429, None),
        ({"code": 400, "message": "m"}, ProviderRefused, 400, None),
        ({"code": "502", "message": "m"}, ProviderBusy, 502, "502"),
        ({"code": True}, ProviderBusy, None, None),
    ],
)
def test_errors_inside_a_stream(
    error: dict[str, Any], kind: type[ProviderError], status: int | None, code: str | None
) -> None:
    found = stream_error(json.dumps({"type": "error", "error": error}).encode())
    assert type(found) is kind
    assert (found.status, found.code) == (status, code)
    assert str(found).startswith("the provider broke off its answer")


def test_one_line_cuts() -> None:
    assert one_line("a  b\t\nc") == "a b c"
    assert one_line("x" * 30, 10) == "x" * 9 + "…"
