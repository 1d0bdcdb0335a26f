"""A scenario on the real engine, judged by what the engine reports.

    run = await run_on_engine(find("g2-engine"), "openai_chat")
    run.engine, run.report.totals.share

The wires are the keys of `ROUTES`.
"""

from __future__ import annotations

from msgspec import structs

from addendum.lab.engine.relay import open_relay
from addendum.lab.engine.server import open_engine
from addendum.lab.report import Run
from addendum.lab.runner import run_scenario
from addendum.lab.scenario import Scenario
from addendum.routes import CacheRules, Capabilities, Endpoint, Route, ToolChanges
from addendum.routes.model import Wire

SCENARIO = "g2-engine"
"""Name of the scenario that is made for the engine."""

MODEL = "addendum-tiny"

# The one slot keeps the last prompt whole; of the next one all that both begin with is read, and
# the last token is evaluated in any case. Nothing else is kept, and nothing expires.
_CACHE = CacheRules(kind="steps", step=1, fresh=1, version="llama-server-slot")

_LIKE_VENDORS = "[a-zA-Z0-9_-]{1,64}"


def _surface(wire: Wire, provider: str, path: str, id_pattern: str = _LIKE_VENDORS) -> Route:
    return Route(
        provider=provider,
        model=MODEL,
        wire=wire,
        endpoint=Endpoint(base_url="", path=path, auth="none"),
        capabilities=Capabilities(),
        cache=_CACHE,
        id_pattern=id_pattern,
        source="llama.cpp at commit 86a2835: one slot, no other cache; seen in its own figures",
        checked="2026-11-30",
        certainty="probed",
    )


ROUTES = {
    "openai_chat": _surface("openai_chat", "compatible", "/chat/completions", "[!-~]{1,128}"),
    "anthropic_messages": structs.replace(
        _surface("anthropic_messages", "anthropic-compatible", "/messages"), max_tokens=1024
    ),
    "openai_responses": structs.replace(
        _surface("openai_responses", "responses-compatible", "/responses"),
        max_tokens_field="max_output_tokens",
    ),
}
"""The engine's surfaces as routes, by wire; each run gives them their address."""


async def run_on_engine(scenario: Scenario, wire: str, tool_changes: ToolChanges = "auto") -> Run:
    """Run a scenario on an engine of its own, which begins with an empty cache.

    Args:
        scenario: What happens: one conversation, since the engine keeps one prompt.
        wire: Key of `ROUTES`.
        tool_changes: How tool changes are told; `auto` is by dispatch.

    Raises:
        EngineUnavailable: The engine cannot run here.
        ProviderError: The engine refused a request, or the script has no answer.
    """
    async with open_engine() as engine, open_relay(engine, scenario.script()) as relay:
        route = ROUTES[wire]
        route = structs.replace(route, endpoint=structs.replace(route.endpoint, base_url=relay.url))
        run = await run_scenario(scenario, route, tool_changes=tool_changes)
        return structs.replace(run, engine=engine.version)
