"""The table of providers: what stands in it, and that it can be corrected and extended as data."""

from __future__ import annotations

import re
from datetime import date

import pytest

from addendum.errors import ConfigurationError
from addendum.routes import choose_projection, context, resolve
from addendum.routes.data import Provider, load, providers

IN_HISTORY = {
    "claude-opus-4-8",
    "claude-opus-5",
    "claude-opus-5-5",
    "claude-fable-5",
    "claude-fable-5-1",
    "claude-mythos-5",
    "claude-mythos-5-1",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
}
ROWS = [(provider, row) for provider in providers().values() for row in provider.rows]


def test_exactly_nine_claude_models_take_changes_in_history() -> None:
    rows = providers()["anthropic"].rows
    capable = {m for row in rows if row.capabilities.tool_update for m in row.models}
    assert capable == IN_HISTORY
    for model in IN_HISTORY:
        for suffix in ("", "-20261001", "@20261001", "-latest", "[1m]", "-20261001[1m]"):
            route = resolve(f"anthropic:{model}{suffix}", environ={})
            assert route.capabilities.tool_update == "in-history", route.name
            assert route.capabilities.definitions == "by-value"
            assert route.capabilities.redefine
            assert route.capabilities.removals == route.capabilities.readd == "block"


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-5",
        "claude-sonnet-5-20260801",
        "claude-opus-4-7",
        "claude-sonnet-4-6",
        "claude-haiku-4-5-20251001",
        "claude-3-5-haiku-20241022",
        "claude-3-opus-20240229",
        # Neighbours of capable ids: a new model is not its elder.
        "claude-opus-5-6",
        "claude-opus-6",
        "claude-fable-5-2",
        "claude-mythos-5-2",
        "claude-opus-5-5-mini",
        "claude-opus-5-2026",
        "claude-opus-50",
    ],
)
def test_all_other_claude_models_take_none(model: str) -> None:
    route = resolve(f"anthropic:{model}", environ={})
    assert route.capabilities.tool_update is None
    assert not route.capabilities.prompt_update
    assert route.capabilities.betas == ()


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5-5", 512),
        ("claude-fable-5", 512),
        ("claude-opus-4-8", 1024),
        ("claude-sonnet-4-6", 1024),
        ("claude-opus-4-1-20250805", 1024),
        ("claude-opus-4-20250514", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-mythos-preview", 2048),
        ("claude-3-5-haiku-20241022", 2048),
        ("claude-opus-4-6", 4096),
        ("claude-haiku-4-5", 4096),
        # Not published: the largest.
        ("claude-sonnet-5-5", 4096),
        ("claude-haiku-5-5", 4096),
        ("claude-opus-9", 4096),
    ],
)
def test_cache_minimums_of_claude(model: str, minimum: int) -> None:
    cache = resolve(f"anthropic:{model}", environ={}).cache
    assert cache.minimum == minimum
    assert (cache.kind, cache.lookback, cache.max_marks) == ("marks", 20, 4)
    assert (cache.lifetimes, cache.default_lifetime_s) == (("5m", "1h"), 300)


@pytest.mark.parametrize(
    ("model", "bound", "keeps"),
    [
        ("claude-opus-5-5", True, True),
        ("claude-fable-5-1", True, True),
        ("claude-haiku-5-5", True, True),
        ("claude-opus-5", False, True),
        ("claude-opus-4-8", False, True),
        ("claude-opus-4-5", False, True),
        ("claude-sonnet-4-6", False, True),
        ("claude-sonnet-4-5", False, False),
        ("claude-haiku-4-5", False, False),
        # Nothing known: bound, which only ever leaves reasoning out.
        ("claude-fable-5-2", True, True),
    ],
)
def test_reasoning_of_claude(model: str, bound: bool, keeps: bool) -> None:
    has = resolve(f"anthropic:{model}", environ={}).capabilities
    assert (has.reasoning_bound, has.keeps_reasoning) == (bound, keeps)


def test_deepseek_flash_is_addition_only_a12() -> None:
    route = resolve("deepseek:deepseek-flash", environ={})
    has = route.capabilities
    assert route.wire == "anthropic_messages"
    assert has.tool_update == "addition-only"
    assert (has.definitions, has.removals, has.readd) == ("by-reference", "omit", "redeclare")
    assert not has.redefine
    assert not has.placeholder
    assert has.prompt_update
    assert has.tail == "kept"
    assert route.cache.kind == "units"
    assert route.certainty == "reported"
    assert route.endpoint.url == "https://api.deepseek.com/anthropic/v1/messages"
    assert resolve("deepseek:deepseek-v4-flash-0731", environ={}).capabilities == has


@pytest.mark.parametrize("model", ["deepseek-v4-pro", "deepseek-reasoner", "deepseek-flash-2"])
def test_other_deepseek_models_take_none_until_probed(model: str) -> None:
    has = resolve(f"deepseek:{model}", environ={}).capabilities
    assert has.tool_update is None
    assert not has.prompt_update
    assert has.tail == "kept"


@pytest.mark.parametrize(
    ("model", "kind", "minimum", "step", "prompt_update"),
    [
        ("gpt-4.1", "steps", 1024, 128, False),
        ("gpt-4o-mini-2024-07-18", "steps", 1024, 128, False),
        ("gpt-5", "steps", 1024, 128, False),
        ("o4-mini", "steps", 1024, 128, False),
        ("gpt-5.4-nano", "steps", 1024, 128, True),
        ("gpt-5.5-pro", "steps", 2048, 2048, True),
        ("gpt-5.6-luna", "boundaries", 1024, 0, True),
        ("gpt-5.10", "boundaries", 1024, 0, True),
        ("gpt-6.1-sol", "boundaries", 1024, 0, True),
        ("gpt-6.2-astra-2026-11-01", "boundaries", 1024, 0, True),
    ],
)
def test_openai_chat_models(
    model: str, kind: str, minimum: int, step: int, prompt_update: bool
) -> None:
    route = resolve(f"openai-chat:{model}", environ={})
    assert (route.cache.kind, route.cache.minimum, route.cache.step) == (kind, minimum, step)
    assert route.capabilities.tool_update is None
    assert route.capabilities.prompt_update is prompt_update
    assert route.capabilities.tail == "kept"
    assert route.max_tokens is None
    assert route.max_tokens_field == "max_completion_tokens"
    assert route.endpoint.url == "https://api.openai.com/v1/chat/completions"


@pytest.mark.parametrize(
    ("model", "kind", "native", "reasons"),
    [
        ("gpt-6.1-sol", "boundaries", True, True),
        ("gpt-6.2-astra-2026-11-01", "boundaries", True, True),
        ("gpt-5.6-luna", "boundaries", True, True),
        ("gpt-5.10", "boundaries", True, True),
        # Below 5.6 others disagree: the safe reading is the dispatcher.
        ("gpt-5.5-pro", "steps", False, True),
        ("gpt-5.4-nano", "steps", False, True),
        ("gpt-5", "steps", False, True),
        ("o4-mini", "steps", False, True),
        ("gpt-5-chat-latest", "steps", False, False),
        ("gpt-4.1", "steps", False, False),
        ("gpt-4o-mini-2024-07-18", "steps", False, False),
    ],
)
def test_openai_responses_models(model: str, kind: str, native: bool, reasons: bool) -> None:
    route = resolve(f"openai:{model}", environ={})
    has = route.capabilities
    assert (route.wire, route.cache.kind) == ("openai_responses", kind)
    assert has.encrypted_reasoning is reasons
    assert has.tool_update == ("addition-only" if native else None)
    if native:
        assert (has.definitions, has.removals, has.readd) == ("by-value", "text", "text")
        assert has.redefine and has.reasoning_bound and has.tail == "kept"
        assert (route.cache.lookback, route.cache.max_marks) == (20, 3)
    assert route.endpoint.url == "https://api.openai.com/v1/responses"


def test_a_gateway_in_front_of_openai_is_told_of_no_items() -> None:
    route = resolve("openai:gpt-6.1-sol", base_url="https://gateway.example.com/v1", environ={})
    assert route.capabilities.tool_update is None
    assert choose_projection(route, has_servers=True) == "dispatch"


def test_a_compatible_endpoint_declares_nothing_a12() -> None:
    route = resolve("compatible:llama3:8b", base_url="http://127.0.0.1:8080/v1", trusted=True)
    assert route.model == "llama3:8b"
    assert route.capabilities.tool_update is None
    assert not route.capabilities.prompt_update
    assert route.capabilities.betas == ()
    assert route.cache.kind == "none"


@pytest.mark.parametrize(("provider", "row"), ROWS)
def test_every_row_holds_together(provider: Provider, row: object) -> None:
    (entry,) = [r for r in provider.rows if r is row]
    for model in entry.models:
        assert provider.row(model) is entry, f"{model} is taken by an earlier row"
    assert entry.source
    assert date.fromisoformat(entry.checked)
    assert entry.cache.version
    has = entry.capabilities
    # Where the tail stands follows from the other facts.
    scoped = any(beta.needed_for == "clear_at" for beta in has.betas)
    assert has.tail == ("scoped" if scoped else "kept")
    if has.tool_update is None:
        assert not (has.redefine or has.placeholder or has.also)
    assert any(re.fullmatch(provider.id_pattern, each) for each in ("call_1-a", "a1B2c3D4e"))
    assert provider.wire != "anthropic_messages" or entry.max_tokens


NEW_VENDOR = """
[[provider]]
name = "kimi"
wire = "openai_chat"
id_pattern = '.+'
source = "platform.kimi.ai"
checked = "2026-11-30"
certainty = "reported"
cache = { kind = "steps", minimum = 256, step = 256, version = "kimi" }

[provider.endpoint]
base_url = "https://api.moonshot.ai/v1"
path = "/chat/completions"
version_in_base = true
key_variables = ["MOONSHOT_API_KEY"]

[[provider.model]]
models = ["kimi-k3"]
[provider.model.capabilities]
tool_update = "addition-only"
definitions = "by-value"
removals = "text"
readd = "redeclare"
"""


def test_a_new_vendor_is_a_row_of_data() -> None:
    route = resolve("kimi:kimi-k3", known=load(NEW_VENDOR), environ={})
    epoch = context(route, choose_projection(route))
    assert (epoch.projection, epoch.definitions, epoch.removals) == (
        "addition-only",
        "by-value",
        "text",
    )
    assert route.endpoint.url == "https://api.moonshot.ai/v1/chat/completions"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("certainty", "certanty"),
        ('"reported"', '"rumoured"'),
        ("tool_update =", "tool_updates ="),
        ("kind =", "sort ="),
        ('"addition-only"', '"additions"'),
        ("'.+'", "'(.+'"),
        ("[[provider]]", "[[provider]"),
        ('models = ["kimi-k3"]', 'models = ["kimi-k3"]\nprofile = "none"'),
        ('models = ["kimi-k3"]', "max_tokens = 4"),
        ('models = ["kimi-k3"]', 'models = ["kimi-k3"]\nmax_tokens = -4'),
        ("minimum = 256", "minimum = -1"),
        ('"kimi"\nwire', '"ki:mi"\nwire'),
        ('"kimi"\nwire', '""\nwire'),
        ('"addition-only"', '"in-history"'),
        ('"by-value"', '"by-reference"'),
        ('removals = "text"', 'removals = "block"'),
        ('wire = "openai_chat"', 'wire = "gemini"'),
        ("[[provider]]", "x = " + "[" * 5000 + "]" * 5000 + "\n[[provider]]"),
        ("[[provider]]", NEW_VENDOR + "[[provider]]"),
    ],
    ids=range(19),
)
def test_mistakes_in_the_data_are_named(old: str, new: str) -> None:
    assert old in NEW_VENDOR
    with pytest.raises(ConfigurationError, match="route data cannot be read") as caught:
        load(NEW_VENDOR.replace(old, new, 1))
    assert "\n" not in str(caught.value)
