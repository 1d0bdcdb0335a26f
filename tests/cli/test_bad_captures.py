"""`addendum check` and captures that are damaged, foreign, or hold secrets: a clear line each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import call, complaint, told

from addendum import encoding

BODY = {"model": "claude-opus-5-5", "messages": [{"role": "user", "content": "a"}]}
GOOD = json.dumps(BODY)

# Put together at run time: a text of this form in the source would be taken for a leak.
KEY = "-".join(("sk", "ant", "api03", "A1b2C3d4E5f6G7h8I9j0"))
OTHER = "-".join(("sk", "proj", "Z9y8X7w6V5u4T3s2R1q0"))
TOKEN = "eyJhbGciOi" + "JIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLWhlcmU"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"hello", ":1: neither JSON lines nor HAR", id="text"),
        pytest.param(b"%PDF-1.7", ":1: neither JSON lines nor HAR", id="pdf"),
        pytest.param(b"", ":1: neither JSON lines nor HAR", id="empty"),
        pytest.param(gzip.compress(GOOD.encode()), ":1: it is compressed (gzip)", id="gzip"),
        pytest.param(b"\x28\xb5\x2f\xfd\x00", ":1: it is compressed (zstandard)", id="zstd"),
        pytest.param(b"PK\x03\x04", ":1: it is compressed (zip)", id="zip"),
        pytest.param(f"{GOOD}\n{GOOD[:-8]}".encode(), ":2: not valid JSON", id="truncated"),
        pytest.param(GOOD[:-8].encode(), ":1: not valid JSON", id="truncated-alone"),
        pytest.param(b'{"log": {"entries": [', ":1: not valid JSON", id="truncated-har"),
        pytest.param(
            b"interactions:\n- request: {body: '", ":2: not valid YAML", id="truncated-cassette"
        ),
        pytest.param(f"{GOOD}\n\x00\x00".encode(), ":2: not valid JSON", id="zeros"),
        pytest.param(b'{"prompt": "complete me"}', ":1: it is no request to a model", id="legacy"),
        pytest.param(b'{"jsonrpc": "2.0"}', ":1: it is no request to a model", id="other-protocol"),
        pytest.param(
            b'{"url": "https://h", "body": {"q": 1}}', ":1: it is no request to a model", id="other"
        ),
        pytest.param(
            b'{"model": "gpt-6", "input": [], "previous_response_id": "r"}',
            ":1: its history lies with the provider",
            id="elsewhere",
        ),
    ],
)
def test_what_cannot_be_checked_is_one_line_that_names_file_and_line(
    tmp_path: Path, data: bytes, said: str
) -> None:
    path = tmp_path / "capture"
    path.write_bytes(data)
    assert complaint("check", str(path)).startswith(f"addendum: {path}{said}")


def test_a_line_that_is_too_long_is_named_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "MAX_TEXT", 200)
    path = tmp_path / "capture"
    path.write_text(f"{GOOD}\n{GOOD[:-1]}, 'x': {'9' * 200}}}", "utf-8")
    assert f"{path}:2: the line is longer than 200 bytes" in complaint("check", str(path))


def test_a_model_that_nobody_knows_is_checked_by_its_beginnings_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    first = {**BODY, "model": "house-model-7", "temperature": 0}
    later = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]
    path.write_text("\n".join(json.dumps(each) for each in (first, {**first, "messages": later})))
    shown = call("check", str(path), code=1).stdout
    assert "note: nothing is known of how house-model-7 caches; only beginnings" in shown
    found = told("check", str(path), code=1)
    assert [each["rule"] for each in found["findings"]] == ["V3"]


def with_secret(key: str) -> dict[str, Any]:
    server = {"type": "url", "url": "https://h/", "authorization_token": f"{key}!x"}
    return {
        "url": f"https://user:{key}@api.anthropic.com/v1/messages?key={key}",
        "headers": {"x-api-key": key, "authorization": f"Bearer {key}", "cookie": key},
        "body": {
            **BODY,
            "system": f"Use the key {key} and the token {TOKEN}.",
            "mcp_servers": [server],
        },
        "response": {"usage": {"input_tokens": 1}, "note": key},
    }


@pytest.mark.parametrize("form", ["text", "json", "junit", "github"])
def test_no_secret_of_a_header_or_a_body_is_printed(tmp_path: Path, form: str) -> None:
    path = tmp_path / "capture"
    # Two keys differ, and that is told; what they are is not.
    lines = [json.dumps(with_secret(KEY)), json.dumps(with_secret(OTHER))]
    talk = json.loads(lines[1])
    talk["body"]["messages"] += [{"role": "assistant", "content": "b"}]
    path.write_text("\n".join([lines[0], json.dumps(talk)]), "utf-8")
    shown = call("check", str(path), "--format", form, code=1).output
    for secret in (KEY, OTHER, TOKEN, KEY[8:], OTHER[8:], TOKEN[12:]):
        assert secret not in shown
    assert "V2" in shown and "****" in shown
