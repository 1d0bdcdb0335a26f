from __future__ import annotations

import importlib
from typing import Any

import pytest

from addendum.errors import ConfigurationError, MissingCredential
from addendum.routes import credentials, resolve
from addendum.routes.credentials import DUMMY

MODEL = "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0"
REGION = {"AWS_REGION": "eu-west-1"}
KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}


def headers(environ: dict[str, str], body: bytes = b"{}", **more: Any) -> dict[str, str]:
    route = resolve(MODEL, environ=environ, **more)
    return {name: value.reveal() for name, value in credentials(route, body=body, environ=environ)}


def test_the_address_has_region_and_model() -> None:
    assert resolve(MODEL, environ=REGION).url == (
        "https://bedrock-runtime.eu-west-1.amazonaws.com"
        "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    )


@pytest.mark.parametrize("environ", [{}, {"AWS_REGION": "evil.example/"}])
def test_without_a_region_there_is_no_address(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="AWS_REGION or AWS_DEFAULT_REGION"):
        _ = resolve(MODEL, environ=environ).url


def test_a_bearer_token_needs_no_signature() -> None:
    environ = REGION | KEYS | {"AWS_BEARER_TOKEN_BEDROCK": "token"}
    assert headers(environ) == {"authorization": "Bearer token"}


def test_access_keys_sign_body_and_address() -> None:
    pytest.importorskip("requests_aws4auth")
    found = headers(REGION | KEYS)
    assert set(found) == {"authorization", "x-amz-date", "x-amz-content-sha256"}
    assert found["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKID/")
    assert "/eu-west-1/bedrock/aws4_request" in found["authorization"]
    other = headers(REGION | KEYS, b"{} ")
    assert other["x-amz-content-sha256"] != found["x-amz-content-sha256"]
    temporary = headers(REGION | KEYS | {"AWS_SESSION_TOKEN": "t"})
    assert temporary["x-amz-security-token"] == "t"
    assert "x-amz-security-token" in temporary["authorization"]


def test_the_region_of_another_address_comes_from_the_environment() -> None:
    pytest.importorskip("requests_aws4auth")
    found = headers(REGION | KEYS, base_url="https://gateway.example")
    assert "/eu-west-1/bedrock/" in found["authorization"]
    with pytest.raises(ConfigurationError, match="the region is not known"):
        headers(KEYS, base_url="https://gateway.example")


def test_a_missing_extra_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name.startswith("requests"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConfigurationError, match=r"addendum\[bedrock\].*AWS_BEARER") as caught:
        headers(REGION | KEYS)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("requests-aws4auth") == 1


def test_without_any_key() -> None:
    with pytest.raises(MissingCredential, match="AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID"):
        headers(REGION | {"AWS_ACCESS_KEY_ID": "half"})
    assert headers({}, base_url="http://127.0.0.1:9") == {"authorization": f"Bearer {DUMMY}"}


def test_gemini_and_vertex() -> None:
    for name, url in (
        (
            "gemini:gemini-3.8-flash",
            "https://generativelanguage.googleapis.com/v1beta"
            "/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
        ),
        (
            "vertex:gemini-3.8-flash",
            "https://aiplatform.googleapis.com/v1beta1/publishers/google"
            "/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
        ),
    ):
        route = resolve(name, environ={})
        assert route.url == url
        (pair,) = credentials(route, environ={"GOOGLE_API_KEY": "key"})
        assert (pair[0], pair[1].reveal()) == ("x-goog-api-key", "key")
    base = "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/europe-west4"
    there = resolve("vertex:gemini-3.8-flash", base_url=base, environ={}).url
    assert there.startswith(f"{base}/publishers/google/models/gemini-3.8-flash:")
