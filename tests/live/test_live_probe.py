"""Whether a real endpoint does what its route's data say. Costs a few cents.

    ADDENDUM_LIVE_ROUTE=anthropic:claude-opus-5-5 ANTHROPIC_API_KEY=... pytest tests/live

As in `test_live_addition`. What differs is shown; `addendum routes probe` keeps it.
"""

from __future__ import annotations

import os
from decimal import Decimal

import pytest

from addendum.cache.spending import Spending
from addendum.errors import AddendumError
from addendum.probe.endpoint import facts, probe
from addendum.routes import credentials, resolve

ROUTE = "ADDENDUM_LIVE_ROUTE"
BASE_URL = "ADDENDUM_LIVE_BASE_URL"
MOST = Decimal(2)
"""US dollars."""

pytestmark = [
    pytest.mark.live,
    pytest.mark.anyio,
    pytest.mark.skipif(
        not os.environ.get(ROUTE),
        reason=f"live: costs money; set {ROUTE}, such as anthropic:claude-opus-5-5, and its key",
    ),
]


async def test_the_endpoint_does_what_the_routes_data_say() -> None:
    try:
        route = resolve(os.environ[ROUTE], base_url=os.environ.get(BASE_URL))
        credentials(route)
    except AddendumError as error:
        pytest.skip(f"live: {error}")
    if route.facts:
        pytest.skip("live: a probe tries every form; leave +FACT out")
    found = await probe(route, Spending(route, MOST))
    if not found:
        pytest.skip(f"live: the wire of {route.name} has no form of tool changes")
    told = facts(route, found)
    assert told is not None, found
    names = ("tool_update",)
    if told.tool_update is not None:
        names = ("tool_update", "definitions", "removals", "readd", "redefine")
    assert {name: getattr(told, name) for name in names} == {
        name: getattr(route.capabilities, name) for name in names
    }, found
