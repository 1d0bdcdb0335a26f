"""Names, weaker forms, and what an address does to a route's capabilities."""

from __future__ import annotations

from importlib.resources import files

import pytest

from addendum.errors import ConfigurationError, UnknownRoute
from addendum.routes import is_loopback, load, resolve

CLAUDE = "anthropic:claude-opus-5-5"


def test_a_plain_name() -> None:
    route = resolve(CLAUDE, environ={})
    assert (route.name, route.full_name) == (CLAUDE, CLAUDE)
    assert (route.provider, route.model, route.facts) == ("anthropic", "claude-opus-5-5", ())
    assert route.endpoint.url == "https://api.anthropic.com/v1/messages"
    assert route.endpoint.headers == (("anthropic-version", "2023-06-01"),)
    assert route.block_betas == ()


def test_by_reference_is_weaker() -> None:
    route = resolve(f"{CLAUDE}+by-reference", environ={})
    has = route.capabilities
    assert (route.name, route.full_name) == (CLAUDE, f"{CLAUDE}+by-reference")
    assert has.tool_update == "in-history"
    assert has.definitions == "by-reference"
    assert not has.redefine
    assert has.removals == "block"
    assert "inline-tools-2026-09-15" not in {beta.name for beta in has.betas}
    assert (has.tail, has.prompt_update, has.placeholder) == ("scoped", True, True)


def test_addition_only_is_weaker_still() -> None:
    has = resolve(f"{CLAUDE}+addition-only", environ={}).capabilities
    assert has.tool_update == "addition-only"
    assert (has.definitions, has.removals, has.readd) == ("by-reference", "omit", "redeclare")
    assert not has.redefine


def test_dispatch_keeps_what_has_nothing_to_do_with_tools() -> None:
    has = resolve(f"{CLAUDE}+dispatch", environ={}).capabilities
    assert has.tool_update is None
    assert (has.prompt_update, has.tail, has.reasoning_bound) == (True, "scoped", True)
    assert [beta.needed_for for beta in has.betas] == ["clear_at"]


@pytest.mark.parametrize("order", ["+by-reference+dispatch", "+dispatch+by-reference"])
def test_facts_in_any_order_never_make_a_route_stronger(order: str) -> None:
    route = resolve(CLAUDE + order, environ={})
    assert route.capabilities == resolve(f"{CLAUDE}+dispatch", environ={}).capabilities
    assert resolve(f"{CLAUDE}+addition-only+by-reference", environ={}).capabilities == (
        resolve(f"{CLAUDE}+addition-only", environ={}).capabilities
    )


@pytest.mark.parametrize("name", ["openai-chat:gpt-4.1", "deepseek:deepseek-flash", "compatible:x"])
def test_every_route_takes_dispatch(name: str) -> None:
    assert resolve(f"{name}+dispatch", environ={}).capabilities.tool_update is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("antropic:claude-opus-5", "did you mean anthropic"),
        ("nobody:x", "no provider 'nobody'; `addendum routes` lists them"),
        ("anthropic:x", "no model 'x'; `addendum routes anthropic` lists them; a model behind"),
        ("openia:gpt-6.1-sol", "did you mean openai"),
        ("anthropic:claud-opus-5-5", "did you mean claude-opus-5-5"),
        ("anthropic:gpt-4.1", "compatible:MODEL"),
        ("openai-chat:mistral-large", "compatible:MODEL"),
        ("anthropic", "write provider:model"),
        ("anthropic:", "write provider:model"),
        ("", "write provider:model"),
        ("anthropic:claude-opus-5\n", "write provider:model"),
        ("anthropic:claude opus", "write provider:model"),
        ("anthropic:" + "x" * 400, "write provider:model"),
        (f"{CLAUDE}+in-history", "it takes +by-reference, +addition-only, +dispatch"),
        (f"{CLAUDE}+", "it takes +by-reference"),
        ("anthropic:claude-sonnet-5+by-reference", "it takes +dispatch"),
        ("compatible:x+in-history", "it takes +dispatch"),
        ("deepseek:deepseek-v4-pro+addition-only", "it takes +dispatch"),
    ],
)
def test_unknown_names_say_in_one_line_what_there_is(name: str, says: str) -> None:
    with pytest.raises(UnknownRoute) as caught:
        resolve(name, environ={})
    message = str(caught.value)
    assert says in message
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "base_url",
    [
        "https://api.anthropic.com",
        "https://API.anthropic.com/",
        "https://api.anthropic.com/v1",
        "http://127.0.0.1:8123",
        "http://127.8.9.10:1/some/path",
        "http://localhost:8123/v1",
        "http://[::1]:8123",
        "http://[::ffff:127.0.0.1]:8123",
    ],
)
def test_own_and_loopback_addresses_keep_the_capabilities(base_url: str) -> None:
    route = resolve(CLAUDE, base_url=base_url, environ={})
    assert route.endpoint.vouched
    assert route.capabilities == resolve(CLAUDE, environ={}).capabilities


@pytest.mark.parametrize(
    "base_url",
    [
        "https://gateway.example.com",
        "http://api.anthropic.com",
        "https://api.anthropic.com.example.com",
        "https://api.anthropic.com:8443",
        "https://api.anthropic.com/proxy",
        "http://127.0.0.1.example.com",
        "http://127.1:80",
        "http://10.0.0.1",
        "http://0.0.0.0:8123",
        "http://lab.localhost",
    ],
)
def test_other_addresses_declare_nothing_unless_vouched_for(base_url: str) -> None:
    route = resolve(CLAUDE, base_url=base_url, environ={})
    has = route.capabilities
    assert not route.endpoint.vouched
    assert has.tool_update is None
    assert not (has.prompt_update or has.placeholder or has.redefine or has.betas or has.also)
    # The model is still the same: its reasoning is bound, so the tail may not move.
    assert (has.reasoning_bound, has.tail) == (True, "kept")
    assert route.cache == resolve(CLAUDE, environ={}).cache
    trusted = resolve(CLAUDE, base_url=base_url, trusted=True, environ={})
    assert trusted.capabilities == resolve(CLAUDE, environ={}).capabilities


def test_a_weaker_form_does_not_vouch_for_an_address() -> None:
    route = resolve(f"{CLAUDE}+by-reference", base_url="https://gateway.example.com", environ={})
    assert route.capabilities.tool_update is None


def test_tails_elsewhere_follow_model_and_cache() -> None:
    elsewhere = "https://gateway.example.com"
    tails = {
        name: resolve(name, base_url=elsewhere, environ={}).capabilities.tail
        for name in ("anthropic:claude-opus-5", "deepseek:deepseek-flash", "openai-chat:gpt-4.1")
    }
    assert tails == {
        "anthropic:claude-opus-5": "kept",
        "deepseek:deepseek-flash": "kept",
        "openai-chat:gpt-4.1": "kept",
    }


def test_addresses_from_the_environment_are_addresses_too() -> None:
    environ = {"ANTHROPIC_BASE_URL": "https://gateway.example.com/"}
    route = resolve(CLAUDE, environ=environ)
    assert route.endpoint.base_url == "https://gateway.example.com"
    assert route.capabilities.tool_update is None
    given = resolve(CLAUDE, base_url="http://127.0.0.1:1", environ=environ)
    assert given.capabilities.tool_update == "in-history"
    assert resolve(CLAUDE, environ={"ANTHROPIC_BASE_URL": " "}).endpoint.vouched
    compatible = resolve("compatible:x", environ={"COMPATIBLE_BASE_URL": "http://10.0.0.1/v1"})
    assert compatible.endpoint.url == "http://10.0.0.1/v1/chat/completions"


def test_the_processs_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:4000")
    assert resolve(CLAUDE).endpoint.url == "http://127.0.0.1:4000/v1/messages"


@pytest.mark.parametrize(
    ("name", "base_url", "url"),
    [
        (CLAUDE, "http://127.0.0.1:9", "http://127.0.0.1:9/v1/messages"),
        (CLAUDE, "http://127.0.0.1:9/v1/", "http://127.0.0.1:9/v1/messages"),
        (CLAUDE, "http://[::1]:9/x", "http://[::1]:9/x/v1/messages"),
        ("openai-chat:gpt-4.1", "http://127.0.0.1:9", "http://127.0.0.1:9/v1/chat/completions"),
        ("openai-chat:gpt-4.1", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/chat/completions"),
        ("compatible:m", "https://x.example/api/v4", "https://x.example/api/v4/chat/completions"),
    ],
)
def test_urls_follow_the_vendors_own_habits(name: str, base_url: str, url: str) -> None:
    assert resolve(name, base_url=base_url, environ={}).endpoint.url == url


def test_compatible_needs_an_address_when_it_is_used() -> None:
    route = resolve("compatible:x", environ={})
    with pytest.raises(ConfigurationError, match="COMPATIBLE_BASE_URL"):
        _ = route.endpoint.url


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "api.example.com",
        "ftp://example.com",
        "http://",
        "http://[::1",
        "http://host:notaport",
        "http://user:secret@example.com",
        "http://example.com/?key=secret",
        "http://example.com/#secret",
        "http://example.com/a b",
        "http://exam\nple.com",
        "http://127.0.0.1\\@example.com",
    ],
)
def test_bad_addresses_are_refused_in_one_line_without_their_secrets(base_url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(CLAUDE, base_url=base_url, environ={})
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_loopback_is_decided_without_looking_names_up() -> None:
    assert is_loopback("http://127.255.0.1")
    assert is_loopback("https://LOCALHOST:1")
    assert not is_loopback("http://localhost.example.com")
    assert not is_loopback("")


def test_a_bad_address_of_a_providers_own_is_one_line_too() -> None:
    text = files("addendum.routes").joinpath("compatible.toml").read_text("utf-8")
    for bad in ("http://[", "ftp://files.example", "https://a:b@example.org"):
        known = load(text.replace("https://api.groq.com/openai/v1", bad))
        with pytest.raises(ConfigurationError, match="base URL") as raised:
            resolve("groq:openai/gpt-oss-120b", known=known, environ={})
        assert "\n" not in str(raised.value) and "a:b" not in str(raised.value)
