"""What has the form of a credential does not leave, and what only looks near to one does."""

from __future__ import annotations

import json
import time

import pytest

from addendum.cache.secrets import bare_address, kept_headers, masked, redacted

SECRETS = {
    "a key": ("Use sk-ant-api03-{}.", "Q9" * 12),
    "a key of a shop": ("sk_live_{}", "Q9" * 12),
    "a bearer": ("Authorization: Bearer {}", "Q9.-" * 6),
    "a user and password in a header": ("Authorization: Basic {}", "dXNlcjpRUTk5"),
    "an address with a password": ("postgres://ann:{}@db.example/x", "hunter2"),
    "a query": ("https://h.example/x?a=1&api_key={}&b=2", "QQ99QQ99"),
    "a query of Google": ("https://h.example/x?key={}", "QQ99QQ99"),
}
FIELDS = (
    "authorization_token",
    "Authorization",
    "X-Api-Key",
    "apiKey",
    "client_secret",
    "password",
    "Set-Cookie",
    "aws_secret_access_key",
)
HARMLESS = (
    "Basic authentication is enough; the bearer of this letter may pass.",
    "https://h.example/x?page=2&keyword=harbour",
    '{"max_tokens": 4096, "prompt_cache_key": "harbour-office", "tool_choice": "required"}',
    '{"password": {"type": "string", "description": "The password."}, "required": ["token"]}',
    "ratio 3:4@noon, sk-short",
)


@pytest.mark.parametrize("form", SECRETS)
def test_a_secret_is_masked_and_redacted_wherever_it_stands(form: str) -> None:
    text, secret = SECRETS[form]
    said = text.format(secret)
    body = json.dumps({"messages": [{"content": said}]}).encode()
    # A placeholder is as long as the secret, and has at least 19 characters.
    assert secret not in masked(said) and len(masked(said)) >= len(said)
    hidden = redacted(body)
    assert secret.encode() not in hidden and b"[redacted " in hidden
    assert json.loads(hidden)["messages"]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_is_called_so_is_hidden_in_json_and_in_json_within_it(name: str) -> None:
    inner = json.dumps({name: "QQ-99 QQ"})
    for body in (
        inner,
        json.dumps({name: "QQ-99 QQ"}, separators=(",", ":")),
        json.dumps({"text": inner}),
        json.dumps({"text": json.dumps({"text": inner})}),
    ):
        assert "QQ-99" not in masked(body)
        assert b"QQ-99" not in redacted(body.encode())
        json.loads(redacted(body.encode()))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text
    assert redacted(text.encode()) == text.encode()


def test_the_same_secret_stays_the_same_and_another_one_another() -> None:
    bodies = [
        redacted(b'{"api_key": "%s"}' % each) for each in (b"first-1", b"first-1", b"other-2")
    ]
    assert bodies[0] == bodies[1] != bodies[2]
    assert redacted(bodies[0]) == bodies[0]


def test_an_address_keeps_its_place_alone() -> None:
    key = "sk-ant-api03-" + "Q9" * 12
    found = bare_address(f"https://ann:{key}@h.example:8080/{key}/v1/messages?key={key}#{key}")
    assert "Q9" not in found
    assert found.startswith("https://h.example:8080/[redacted ") and found.endswith("/v1/messages")
    assert bare_address("http://[::1/v1/messages") == ""


def test_headers_with_credentials_are_left_out_in_either_form() -> None:
    headers = {"Anthropic-Version": "1", "X-Api-Key": "k", "anthropic-api-key": "k", "Cookie": "k"}
    assert kept_headers(headers) == {"anthropic-version": "1"}
    listed = [{"name": name, "value": value} for name, value in headers.items()]
    assert kept_headers(listed) == {"anthropic-version": "1"}
    assert kept_headers({"openai-organization": "o", "openai-beta": ["b"]}) == {"openai-beta": "b"}


def test_a_large_body_takes_no_time_to_speak_of() -> None:
    for part in (b'"' + b"a" * 1000, b"token" * 100, b"://a:b" * 100, b'\\"' * 400, b"?key=" * 200):
        began = time.process_time()
        redacted(part * (2_000_000 // len(part)))
        assert time.process_time() - began < 10
