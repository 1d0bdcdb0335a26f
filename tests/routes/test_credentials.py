"""Keys come from the environment and do not show themselves."""

from __future__ import annotations

import pytest

from addendum import encoding
from addendum.errors import MissingCredential
from addendum.routes import Secret, credentials, resolve

LOOPBACK = "http://127.0.0.1:8123"


@pytest.mark.parametrize(
    ("name", "variable", "header", "value"),
    [
        ("anthropic:claude-opus-5", "ANTHROPIC_API_KEY", "x-api-key", "k-1"),
        ("deepseek:deepseek-flash", "DEEPSEEK_API_KEY", "x-api-key", "k-1"),
        ("openai-chat:gpt-4.1", "OPENAI_API_KEY", "authorization", "Bearer k-1"),
        ("compatible:x", "COMPATIBLE_API_KEY", "authorization", "Bearer k-1"),
    ],
)
def test_each_provider_has_its_variable_and_header(
    name: str, variable: str, header: str, value: str
) -> None:
    route = resolve(name, environ={})
    ((found, secret),) = credentials(route, environ={variable: " k-1\n"})
    assert (found, secret.reveal()) == (header, value)


@pytest.mark.parametrize("environ", [{}, {"ANTHROPIC_API_KEY": "  "}, {"OPENAI_API_KEY": "k"}])
def test_a_missing_key_names_its_variable(environ: dict[str, str]) -> None:
    route = resolve("anthropic:claude-opus-5", environ={})
    with pytest.raises(MissingCredential, match=r"set ANTHROPIC_API_KEY$") as caught:
        credentials(route, environ=environ)
    assert caught.value.route == "anthropic:claude-opus-5"


def test_loopback_is_content_with_a_dummy() -> None:
    for name in ("anthropic:claude-opus-5", "openai-chat:gpt-4.1", "compatible:x"):
        route = resolve(name, base_url=LOOPBACK, environ={})
        ((_, secret),) = credentials(route, environ={})
        assert secret.reveal().endswith("addendum-loopback")
        ((_, own),) = credentials(
            route, environ=dict.fromkeys(route.endpoint.key_variables, "mine")
        )
        assert own.reveal().endswith("mine")


def test_compatible_goes_without_a_key() -> None:
    route = resolve("compatible:x", base_url="http://10.0.0.1:8000/v1", environ={})
    assert credentials(route, environ={}) == ()


@pytest.mark.parametrize("key", ["a\nx-evil: 1", "a\rb", "schlüssel", "a\x00b"])
def test_a_key_that_cannot_be_a_header_is_not_repeated(key: str) -> None:
    route = resolve("anthropic:claude-opus-5", environ={})
    with pytest.raises(MissingCredential, match="ANTHROPIC_API_KEY") as caught:
        credentials(route, environ={"ANTHROPIC_API_KEY": key})
    assert key not in str(caught.value)


def test_the_processs_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
    ((_, secret),) = credentials(resolve("anthropic:claude-opus-5", environ={}))
    assert secret.reveal() == "from-env"


def test_a_secret_hides_itself() -> None:
    secret = Secret("hush")
    for shown in (repr(secret), str(secret), f"{secret}", f"{[secret]!r}", "%s" % secret):  # noqa: UP031
        assert "hush" not in shown
    assert secret == Secret("hush")
    assert secret != Secret("other")
    assert secret != "hush"
    assert len({secret, Secret("hush")}) == 1
    with pytest.raises(TypeError):
        encoding.encode({"key": secret})
