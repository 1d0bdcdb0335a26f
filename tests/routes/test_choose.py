"""Choice, what an epoch records, and the ladder down."""

from __future__ import annotations

import itertools

import pytest

from addendum.errors import ConfigurationError
from addendum.log.events import RequestContext
from addendum.routes import (
    SYSTEM_ROLE,
    Route,
    choose_projection,
    context,
    fields,
    resolve,
    weaker,
)

INLINE = "inline-tools-2026-09-15"
REFERENCE = "mid-conversation-tool-changes-2026-07-01"
CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"


def route(name: str, **options: object) -> Route:
    return resolve(name, environ={}, **options)  # pyright: ignore[reportArgumentType]


CLAUDE = route("anthropic:claude-opus-5-5")
FLASH = route("deepseek:deepseek-flash")
ADDITIONS = route("anthropic:claude-opus-5-5+addition-only")
CHAT = route("openai-chat:gpt-4.1")
OLD = route("anthropic:claude-sonnet-5")
COMPATIBLE = route("compatible:x", base_url="http://127.0.0.1:1")
CONFIGURATIONS = [
    {"has_servers": s, "has_deferred": d, "tool_dispatch": t}
    for s, d, t in itertools.product((False, True), repeat=3)
]


@pytest.mark.parametrize("options", CONFIGURATIONS)
def test_auto_is_native_where_the_data_says_so(options: dict[str, bool]) -> None:
    assert choose_projection(CLAUDE, **options) == "in-history"
    # Where each removal breaks the prefix, only while none can come, or if it is asked for.
    expected = "dispatch" if any(options.values()) else "addition-only"
    assert choose_projection(FLASH, **options) == expected
    assert choose_projection(FLASH, "native", **options) == "addition-only"
    assert choose_projection(ADDITIONS, **options) == "addition-only"


@pytest.mark.parametrize("options", CONFIGURATIONS)
@pytest.mark.parametrize("plain", [CHAT, OLD, COMPATIBLE])
def test_auto_elsewhere_is_dispatch_if_a_change_can_come(
    plain: Route, options: dict[str, bool]
) -> None:
    expected = "dispatch" if any(options.values()) else "rebind"
    assert choose_projection(plain, **options) == expected


def test_asking_decides() -> None:
    assert choose_projection(CLAUDE, "native") == "in-history"
    assert choose_projection(CLAUDE, "dispatch") == "dispatch"
    assert choose_projection(CLAUDE, "rebind", has_servers=True, tool_dispatch=True) == "rebind"
    assert choose_projection(CHAT, "rebind", has_servers=True) == "rebind"
    assert choose_projection(CHAT, "dispatch") == "dispatch"


def test_a_route_named_dispatch_dispatches() -> None:
    assert choose_projection(route("anthropic:claude-opus-5-5+dispatch")) == "dispatch"
    assert choose_projection(route("openai-chat:gpt-4.1+dispatch")) == "dispatch"


@pytest.mark.parametrize("plain", [CHAT, OLD, route("anthropic:claude-opus-5+dispatch")])
def test_native_without_the_capability_is_refused(plain: Route) -> None:
    with pytest.raises(ConfigurationError, match="use tool_changes 'auto'") as caught:
        choose_projection(plain, "native", has_servers=True)
    assert plain.full_name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.route == plain.name


def test_native_at_an_unknown_address_says_how_to_vouch() -> None:
    elsewhere = route("anthropic:claude-opus-5", base_url="https://gateway.example.com")
    with pytest.raises(ConfigurationError, match="trusted=True"):
        choose_projection(elsewhere, "native")


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'fast'.*'auto', 'native', 'dispatch' or 'rebind'"
    ):
        choose_projection(CLAUDE, "fast")  # pyright: ignore[reportArgumentType]


SHOWS = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


def test_claude_by_value() -> None:
    assert context(CLAUDE, "in-history", rendering=7) == RequestContext(
        route="anthropic:claude-opus-5-5",
        wire="anthropic_messages",
        projection="in-history",
        definitions="by-value",
        removals="block",
        readd="block",
        redefine=True,
        prompt_update=True,
        tail="scoped",
        caching=True,
        ttl="5m",
        betas=(INLINE, CLEAR_AT),
        placeholder=True,
        reasoning_bound=True,
        cache_rules="anthropic-2026-09-26",
        rendering=7,
        shows=SHOWS,
    )


def test_claude_by_reference_uses_the_older_beta_only() -> None:
    epoch = context(route("anthropic:claude-opus-5-5+by-reference"), "in-history")
    assert epoch.definitions == "by-reference"
    assert not epoch.redefine
    assert epoch.removals == "block"
    assert epoch.betas == (REFERENCE, CLEAR_AT)
    assert epoch.route == "anthropic:claude-opus-5-5"


def test_the_beta_set_is_what_the_configuration_can_need() -> None:
    assert context(CLAUDE, "in-history", tail="kept").betas == (INLINE,)
    assert context(CLAUDE, "in-history", tail="moved").betas == (INLINE,)
    assert context(CLAUDE, "in-history", caching=False).betas == (INLINE,)
    assert context(CLAUDE, "dispatch").betas == (CLEAR_AT,)
    assert context(CLAUDE, "rebind", tail="kept").betas == ()
    assert context(OLD, "dispatch").betas == ()


def test_deepseek_sends_its_beta_with_blocks_only_a12() -> None:
    epoch = context(FLASH, "addition-only")
    assert epoch.betas == ()
    assert FLASH.block_betas == (REFERENCE,)
    assert (epoch.removals, epoch.readd, epoch.redefine) == ("omit", "redeclare", False)
    assert (epoch.prompt_update, epoch.tail, epoch.ttl) == (True, "kept", None)
    assert not epoch.placeholder
    assert CHAT.block_betas == CLAUDE.block_betas == ()


@pytest.mark.parametrize("any_route", [CLAUDE, FLASH, CHAT, OLD, COMPATIBLE])
def test_dispatch_and_rebind_are_told_alike_everywhere(any_route: Route) -> None:
    dispatch = context(any_route, "dispatch")
    assert (dispatch.definitions, dispatch.removals, dispatch.readd) == ("by-value", "text", "text")
    assert dispatch.redefine
    assert dispatch.form == "dispatch"
    rebind = context(any_route, "rebind")
    assert (rebind.definitions, rebind.removals) == ("by-reference", "omit")
    assert (rebind.readd, rebind.redefine, rebind.form) == ("redeclare", False, "direct")
    for epoch in (dispatch, rebind):
        assert not epoch.placeholder
        assert epoch.prompt_update == any_route.capabilities.prompt_update
        assert epoch.cache_rules == any_route.cache.version


def test_a_native_projection_must_be_the_routes_own() -> None:
    for wrong, projection in ((CHAT, "in-history"), (CLAUDE, "addition-only")):
        with pytest.raises(ConfigurationError, match="use tool_changes"):
            context(wrong, projection)  # pyright: ignore[reportArgumentType]
    assert context(route("anthropic:claude-opus-5+addition-only"), "addition-only").removals == (
        "omit"
    )


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("anthropic:claude-opus-5-5", "scoped"),
        ("anthropic:claude-opus-5-5+dispatch", "scoped"),
        ("anthropic:claude-fable-5-2", "kept"),
        ("anthropic:claude-sonnet-4-6", "kept"),
        ("deepseek:deepseek-v4-pro", "kept"),
        ("openai-chat:gpt-6.1-sol", "kept"),
        ("compatible:x", "kept"),
    ],
)
def test_tails_by_route_data(name: str, tail: str) -> None:
    assert context(route(name), "dispatch").tail == tail
    assert context(route(name), "dispatch", tail="kept").tail == "kept"
    assert context(route(name), "dispatch", tail="moved").tail == "moved"


def test_tails_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no scoped instructions"):
        context(CHAT, "dispatch", tail="scoped")
    with pytest.raises(ConfigurationError, match=r"'floating'.*'scoped' or 'auto'"):
        context(CHAT, "dispatch", tail="floating")  # pyright: ignore[reportArgumentType]


def test_without_caching_the_tail_is_of_its_turn_only() -> None:
    epoch = context(CLAUDE, "in-history", caching=False, ttl="1h", tail="scoped")
    assert (epoch.caching, epoch.tail, epoch.ttl) == (False, "moved", None)


def test_lifetimes_belong_to_marks() -> None:
    assert context(CLAUDE, "in-history").ttl == "5m"
    assert context(CLAUDE, "in-history", ttl="1h").ttl == "1h"
    assert context(CHAT, "rebind", ttl="1h").ttl is None
    assert context(route("openai-chat:gpt-6.1-sol"), "rebind").ttl is None
    with pytest.raises(ConfigurationError, match=r"'24h'.*'5m', '1h' or None"):
        context(CLAUDE, "in-history", ttl="24h")  # pyright: ignore[reportArgumentType]


def rung(epoch: RequestContext | None) -> tuple[str, str] | None:
    return None if epoch is None else (epoch.projection, epoch.definitions)


@pytest.mark.parametrize(
    ("rejected", "expected"),
    [
        ((INLINE,), ("in-history", "by-reference")),
        (("tool_definition",), ("in-history", "by-reference")),
        (("tool_definition", "tool_reference"), ("dispatch", "by-value")),
        (("tool_definition", REFERENCE), ("dispatch", "by-value")),
        (("tool_addition",), ("dispatch", "by-value")),
        (("tool_removal",), ("dispatch", "by-value")),
        # The placeholder is deferred, so by-reference would not help.
        (("defer_loading",), ("dispatch", "by-value")),
        ((), None),
        (("temperature",), None),
    ],
)
def test_the_ladder_from_by_value(
    rejected: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    epoch = context(CLAUDE, "in-history")
    down = weaker(CLAUDE, epoch, rejected)
    assert rung(down) == expected
    if down is not None:
        assert not fields(CLAUDE, down) & set(rejected)
        assert (down.tail, down.rendering, down.ttl) == (epoch.tail, epoch.rendering, epoch.ttl)


def test_each_rung_is_the_context_one_would_have_chosen() -> None:
    epoch = context(CLAUDE, "in-history", ttl="1h", rendering=3)
    by_reference = route("anthropic:claude-opus-5-5+by-reference")
    assert weaker(CLAUDE, epoch, ["tool_definition"]) == context(
        by_reference, "in-history", ttl="1h", rendering=3
    )
    assert weaker(CLAUDE, epoch, ["tool_addition"]) == context(
        CLAUDE, "dispatch", ttl="1h", rendering=3
    )


@pytest.mark.parametrize("field", ["tool_addition", "defer_loading", REFERENCE])
def test_deepseek_goes_straight_to_dispatch(field: str) -> None:
    down = weaker(FLASH, context(FLASH, "addition-only"), [field])
    assert down == context(FLASH, "dispatch")


def test_dispatch_and_rebind_have_nothing_to_give_up() -> None:
    for projection in ("dispatch", "rebind"):
        epoch = context(CHAT, projection)  # pyright: ignore[reportArgumentType]
        assert fields(CHAT, epoch) == frozenset()
        assert weaker(CHAT, epoch, ["tool_addition", "defer_loading"]) is None


@pytest.mark.parametrize("field", ["clear_at", CLEAR_AT])
def test_a_refused_scoped_tail_costs_only_the_tail(field: str) -> None:
    epoch = context(CLAUDE, "in-history")
    down = weaker(CLAUDE, epoch, [field])
    assert down == context(CLAUDE, "in-history", tail="kept")
    unbound = route("anthropic:claude-opus-5")
    softer = weaker(unbound, context(unbound, "in-history"), [field])
    assert softer == context(unbound, "in-history", tail="kept")


def test_a_refused_system_role_leaves_nothing_that_needs_it() -> None:
    down = weaker(CLAUDE, context(CLAUDE, "in-history"), [SYSTEM_ROLE])
    assert down is not None
    assert (down.projection, down.prompt_update, down.tail, down.betas) == (
        "dispatch",
        False,
        "kept",
        (),
    )
    assert fields(CLAUDE, down) == frozenset()


@pytest.mark.parametrize("any_route", [CLAUDE, FLASH, route("anthropic:claude-opus-5+dispatch")])
def test_whatever_is_refused_there_is_one_way_on(any_route: Route) -> None:
    epoch = context(any_route, choose_projection(any_route))
    names = sorted(fields(any_route, epoch))
    for size in range(1, len(names) + 1):
        for rejected in itertools.combinations(names, size):
            down = weaker(any_route, epoch, rejected)
            assert down is not None
            assert down != epoch
            assert not fields(any_route, down) & set(rejected)
            # The same refusal cannot be met twice.
            assert weaker(any_route, down, rejected) is None


def test_refusals_that_are_remembered_seed_new_epochs() -> None:
    seeded = context(CLAUDE, "in-history", rejected=["tool_addition"])
    assert seeded == context(CLAUDE, "dispatch")
    assert context(CHAT, "dispatch", rejected=["tool_addition"]) == context(CHAT, "dispatch")
    assert context(CLAUDE, "dispatch", rejected=["clear_at"]).tail == "kept"


def test_an_epoch_can_be_weakened_after_its_route_lost_the_capability() -> None:
    epoch = context(CLAUDE, "in-history")
    lost = route("anthropic:claude-opus-5-5", base_url="https://gateway.example.com")
    assert rung(weaker(lost, epoch, ["tool_definition"])) == ("dispatch", "by-value")
