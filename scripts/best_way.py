"""Compare `auto` with every other way, on every scenario and route: who reads least uncached?

    python -m scripts.best_way [--route R]... [SCENARIO]...

One line a scenario and route: uncached tokens of `auto`, of the best way and of the floor, then
what `auto` costs beyond the best way, in tokens and in money. It fails where that is more than
5 % in tokens or 2 % in money.
"""

from __future__ import annotations

import argparse
import sys

import anyio

from addendum.cli.demo import ROUTES
from addendum.errors import AddendumError
from addendum.lab.best import Best, best_of
from addendum.lab.scenario_file import find

SCENARIOS = ("empty-head", "flap", "g2", "prompt-and-tool", "redefine", "tail", "wide")
MORE = ("openai-chat:gpt-6.2-sol", "deepseek-chat:deepseek-flash", "openrouter:qwen/qwen3-max")
TOKENS, MONEY = 1 / 1.05, 1 / 1.02


def main() -> int:
    """Print the table; return 1 where `auto` is too far behind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS, metavar="SCENARIO")
    parser.add_argument("--route", action="append", dest="routes", metavar="R")
    wanted = parser.parse_args()
    routes: list[str] = wanted.routes or list(dict.fromkeys([*ROUTES, *MORE]))
    print(f"{'scenario':16} {'route':34} {'auto':>8} {'best':>8} {'floor':>8} {'tokens':>7} money")
    behind = 0
    for name in wanted.scenarios:
        for route in routes:
            try:
                best = anyio.run(best_of, find(name), route)
            except AddendumError as error:
                print(f"{name:16} {route:34} {error}")
                behind += 1
                continue
            print(f"{name:16} {route:34} {_line(best)}")
            behind += best.of_best < TOKENS or (best.money_of_best or 1) < MONEY
    print(f"{behind} behind the best way by more than 5 % in tokens or 2 % in money")
    return 1 if behind else 0


def _line(best: Best) -> str:
    lead = best.ways[0]
    figures = f"{best.own.uncached:8,} {lead.uncached:8,} {best.floor.uncached:8,}"
    money = "-" if best.money_of_best is None else f"{1 / best.money_of_best - 1:+.1%}"
    way = "" if lead is best.own else f"  {lead.tool_changes}, {lead.tail}"
    return f"{figures} {1 / best.of_best - 1:+7.1%} {money}{way}"


if __name__ == "__main__":
    sys.exit(main())
