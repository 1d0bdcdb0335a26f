"""What switches cost by their number: 14 turns in which 1, 2 or 4 servers of 12 tools come.

Prices are list prices of the prompts and answers, the cache is simulated by published rules.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import anyio

from addendum.cache.cost import price, summed
from addendum.lab.report import Run
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.routes import resolve

ROUTES = ("anthropic:claude-opus-5-5", "openai-chat:gpt-4.1")
SWITCHES = (1, 2, 4)
TURNS = 14
TOOL = (
    "{name: t%d, description: {text: Tool %d., tokens: 85}, parameters: {properties: "
    "{q: {type: string, description: What to look for.}}}, result: found}"
)
HEAD = """name: switches
instructions: {text: Be brief., tokens: 2000}
tools: [{name: look, parameters: {properties: {q: {type: string}}},
  result: {text: seen, tokens: 400}}]
"""


def text(switches: int) -> str:
    """Return a scenario with its switches spread over its turns."""
    tools = ", ".join(TOOL % (at, at) for at in range(12))
    servers = "\n".join(f"  s{at}: {{tools: [{tools}]}}" for at in range(switches))
    every = TURNS // (switches + 1)
    steps: list[str] = []
    for turn in range(TURNS):
        at, rest = divmod(turn, every)
        if not rest and 1 <= at <= switches:
            steps.append(f"  - enable: s{at - 1}")
        steps.append(
            f"  - user: {{text: Turn {turn}., tokens: 60}}\n    model: [{{calls: [{{tool: look, "
            f"arguments: {{q: a}}}}]}}, {{text: {{text: Said {turn}., tokens: 300}}}}]"
        )
    return f"{HEAD}servers:\n{servers}\nsteps:\n" + "\n".join(steps)


def shown(run: Run) -> tuple[float, str]:
    """Return what a run cost, and a cell that tells it."""
    costs = [price(resolve(r.route, environ={}), r.usage, r.time_sent) for r in run.records]
    whole = summed(costs)
    assert whole is not None
    totals = run.report.totals
    return float(whole.amount), f"${whole.amount:.3f}, {totals.prompt_tokens - totals.cache_read:,}"


def main() -> None:
    """Print a row for each route and number of switches."""
    print(f"{'route':<28}{'switches':>9}{'told':>18}{'written anew':>18}{'saved':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for route in ROUTES:
            for count in SWITCHES:
                path = Path(folder) / "switches.yaml"
                path.write_text(text(count), "utf-8")
                scenario = find(str(path))
                runs = [
                    anyio.run(partial(run_scenario, scenario, route, tool_changes=form))
                    for form in ("auto", "rebind")
                ]
                (ours, told), (theirs, anew) = map(shown, runs)
                saved = f"{100 * (1 - ours / theirs):.0f} %"
                print(f"{route:<28}{count:>9}{told:>18}{anew:>18}{saved:>7}", flush=True)


if __name__ == "__main__":
    main()
