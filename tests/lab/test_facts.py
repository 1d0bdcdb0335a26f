"""Facts that stand twice, in the data of routes and in the lab: every one is compared.

A route may say less than the lab plays, where its data takes the safe reading, and then it stands
in `SAFER`. It never says more.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum.cache.rules import CacheRules
from addendum.lab import facts
from addendum.lab.facts import CHAT_VENDORS, CacheFacts
from addendum.lab.records import rules_of
from addendum.lab.server import PROVIDERS, Lab
from addendum.routes import Route, resolve
from addendum.routes.data import providers
from addendum.wire.apis import facts as wire_facts

SAFER = {
    r"openrouter:anthropic/claude-opus-4\.[567]": {"minimum", "reasoning_bound"},
    r"openrouter:openai/gpt-5\.[45]": {"step", "lifetime"},
    r"azure(-chat)?:(gpt-5|o\d).*": {"step", "lifetime"},
    r"sglang:.+": {"step"},
}
"""Routes by their names, and what their data says less of than others say. Why stands there."""


class Pair(NamedTuple):
    """A fact of a route as its data has it and as the lab plays it, the larger the safer."""

    name: str
    route: float
    lab: float


def _routes() -> list[Route]:
    """Return a route for each model that is named in the data of a provider the lab plays.

    Of rows without names, those that take any name are met too.
    """
    rows = ((name, row) for name in PROVIDERS for row in providers()[name].rows)
    return [
        resolve(f"{name}:{model}", environ={})
        for name, row in rows
        for model in row.models or ("any",) * bool(row.pattern.fullmatch("any"))
    ]


ROUTES = _routes()
LAB = Lab()


def caches(route: Route) -> CacheFacts | None:
    return LAB._providers[route.provider].caches(route.model)


def pairs(route: Route) -> list[Pair]:
    """Return the facts that the data of a route states and the lab plays."""
    played, cache = caches(route), route.cache
    assert played is not None
    step = cache.step or 1
    found = [
        # In steps of the route: only whole ones are expected.
        Pair("minimum", -(-cache.minimum // step), -(-played.minimum // step)),
        Pair("fresh", cache.fresh, played.fresh),
        Pair("lifetime", -cache.default_lifetime_s, -played.lifetime),
    ]
    # Where the step of automatic units is not published, only the ends of requests are relied on.
    if cache.step or cache.kind != "units":
        found.append(Pair("step", cache.step, played.step))
    if cache.kind in ("marks", "boundaries"):
        found += [
            Pair("lookback", -cache.lookback, -played.lookback),
            Pair("max_marks", -cache.max_marks, -played.marks),
            Pair("text_marks", cache.text_marks, played.text_marks),
        ]
    if cache.kind == "marks":
        found.append(Pair("runs", -wire_facts(route).runs, -played.runs))
    claude = re.search(r"claude-[\w.-]+", route.model)
    if claude and (model := facts.claude_model(claude[0].replace(".", "-"))):
        has = route.capabilities
        found += [
            Pair("reasoning_bound", has.reasoning_bound, model.bound),
            Pair("keeps_reasoning", -has.keeps_reasoning, -model.keeps_thinking),
        ]
    return found


def safer(route: Route) -> set[str]:
    return {
        name
        for pattern, names in SAFER.items()
        if re.fullmatch(pattern, route.name)
        for name in names
    }


CACHED = [route for route in ROUTES if route.cache.kind != "none"]


@pytest.mark.parametrize("route", CACHED, ids=lambda route: route.name)
def test_a_route_says_what_the_lab_plays(route: Route) -> None:
    played = caches(route)
    assert played is not None, "its data says that it caches, and the lab does not play that"
    for name, said, plays in pairs(route):
        if name in safer(route):
            assert said >= plays, f"{name}: more hopeful than the lab"
        else:
            assert said == plays, f"{name}: correct one of the two, or say in SAFER why not"
    for name in route.cache.lifetimes:
        assert route.cache.lifetime(name) == played.lifetimes[name]


def test_what_is_said_to_be_safer_is() -> None:
    for pattern, names in SAFER.items():
        routes = [route for route in CACHED if re.fullmatch(pattern, route.name)]
        differ = {pair.name for route in routes for pair in pairs(route) if pair.route > pair.lab}
        assert differ == names


def test_every_provider_is_met() -> None:
    assert {route.provider for route in ROUTES} == set(PROVIDERS)
    kinds = {route.cache.kind for route in CACHED}
    assert kinds == {"marks", "steps", "boundaries", "units"}


@pytest.mark.parametrize("route", CACHED, ids=lambda route: route.name)
def test_the_judge_goes_by_the_same_figures(route: Route) -> None:
    rules, played = rules_of(route.cache), caches(route)
    assert played is not None
    if rules.kind == "marks":
        assert dict(rules.lifetimes).items() >= dict(played.lifetimes).items()
    if rules.kind == "boundaries":
        assert rules.max_marks == facts.OPENAI_WRITES.value
        assert rules.earlier_ends == played.lookback
        assert rules.first_marks == facts.OPENAI_EXPLICIT_FIRST.value
        assert rules.latest_marks == facts.OPENAI_EXPLICIT_LATEST.value


def test_what_nobody_knows_is_judged_by_the_figures_of_claude() -> None:
    rules = CacheRules("marks")
    assert rules.lookback == facts.CLAUDE_LOOKBACK_POSITIONS.value
    assert rules.max_marks == facts.CLAUDE_MARKS.value
    assert dict(rules.lifetimes) == facts.CLAUDE_LIFETIME_SECONDS.value


def test_flags_and_versions_are_spelled_alike() -> None:
    sent = {beta.name for route in ROUTES for beta in route.capabilities.betas}
    known = {value for name, value in vars(facts).items() if name.startswith("BETA_")}
    assert sent and sent <= known
    versions = {route.endpoint.body_version for route in ROUTES} - {""}
    assert versions == {facts.VERTEX_CLAUDE_VERSION.value}


VENDORS = [route for route in ROUTES if route.provider in CHAT_VENDORS]


@pytest.mark.parametrize("route", VENDORS, ids=lambda route: route.name)
def test_tools_are_told_in_messages_where_the_vendor_takes_them(route: Route) -> None:
    vendor = CHAT_VENDORS[route.provider].value
    takes = bool(re.fullmatch(vendor.message_tools, route.model))
    assert (route.capabilities.tool_update is not None) == takes


@pytest.mark.parametrize("provider", CHAT_VENDORS)
@given(data=st.data())
def test_ids_of_calls_that_are_sent_are_taken(provider: str, data: st.DataObject) -> None:
    pattern = providers()[provider].id_pattern
    call_id = data.draw(st.from_regex(pattern, fullmatch=True))
    assert re.fullmatch(CHAT_VENDORS[provider].value.call_ids, call_id)
