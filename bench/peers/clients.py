"""Clients that people have, unchanged, on a scenario: alone, and with one argument more.

Each plays the conversation twice against a lab of its own: alone, and with `addendum.http_client()`
or `async_http_client()` as its HTTP client. Its own code has to see the same calls and the same
answers. What left is judged by its bytes.

Usage: python bench/peers/clients.py [--write FILE] [SCENARIO]...

`--write FILE` puts the table between the lines `<!-- clients -->` and `<!-- end -->` of a page.
Exit 1 if a client saw something else, missed without a declared reason or read less than alone.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import Struct, json, structs
from run import ROUTES, Subject, plan, script, taken

from addendum.cache.capture import record_of
from addendum.cache.figures import Totals, judge
from addendum.lab.records import lab_count, rules_of
from addendum.lab.scenario import Say, Scenario, Toggle
from addendum.lab.scenario_file import bundled, find
from addendum.lab.server import open_lab
from addendum.routes import resolve

CLIENTS = (
    Subject("pydantic-ai 2.68.0", "anthropic", "pydantic_ai_g2.py"),
    Subject("pydantic-ai 2.68.0", "chat", "pydantic_ai_g2.py"),
    Subject("langchain 1.5.2", "chat", "langchain_g2.py"),
    Subject("openai-agents 0.24.0", "chat", "openai_agents_g2.py"),
)
WIRES = {"anthropic": "Messages", "chat": "Chat Completions"}
BEGIN, END = "<!-- clients -->\n", "<!-- end -->"


class Pair(Struct, frozen=True):
    """A client on a scenario, alone and through.

    Attributes:
        alone: Figures without addendum; None where the provider refused to go on.
        through: Figures with it.
        same: Whether its own code saw the same.
        declared: Reasons of the breaks that were declared before they were sent.
    """

    alone: Totals | None
    through: Totals
    same: bool
    declared: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is worse, and all that there was is read."""
        figures = self.through
        whole = figures.ceiling_share is not None and figures.ceiling_share >= 0.99
        missed = figures.misses > len(self.declared)
        told = self.same and not missed and (whole or bool(self.declared))
        return told and (self.alone is None or _lost(figures) <= 1.02 * _lost(self.alone))


def _lost(figures: Totals) -> int:
    return figures.prompt_tokens - figures.cache_read


async def played(subject: Subject, scenario: Scenario) -> tuple[Totals, bytes]:
    """Run a client; return the figures of what left, and what its own code saw."""
    route, provider = ROUTES[subject.wire]
    async with open_lab(scenario.script()) as lab:
        saw = await script(subject, plan(scenario), lab.base_url(provider))
        captures = [each for each in taken(lab) if each.status == 200]
    known = resolve(route, environ={})
    records = [
        structs.replace(record_of(each, n, "one"), route=known.name)
        for n, each in enumerate(captures, 1)
    ]
    return judge(records, rules_of(known.cache), lab_count).totals, saw


def pair(subject: Subject, scenario: Scenario) -> Pair:
    """Run a client alone and through."""
    alone, saw = None, b""
    with suppress(RuntimeError):
        alone, saw = anyio.run(played, subject, scenario)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nodes.db"
        os.environ["ADDENDUM_NODES"] = f"sqlite:///{file}"
        through, saw_too = anyio.run(played, structs.replace(subject, how="through"), scenario)
        declared = tuple(breaks(file))
    return Pair(alone, through, alone is None or saw == saw_too, declared)


def breaks(file: Path) -> Iterator[str]:
    """Yield the reasons of the breaks that a file of nodes knows of."""
    db = sqlite3.connect(file)
    for (value,) in db.execute("SELECT value FROM gateway_nodes WHERE name LIKE 'node:%'"):
        yield from (each["reason"] for each in json.decode(value).get("breaks", ()))
    db.close()


def can_be_played(scenario: Scenario) -> bool:
    """Say whether the frameworks' scripts can play a scenario: it talks and switches servers."""
    simple = all(isinstance(step, Say | Toggle) for step in scenario.steps)
    canned = all(each.tools for each in scenario.servers)
    return simple and canned and scenario.turn_instructions is None


def rows(names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the table's rows, each with whether it holds."""
    for name in names:
        for subject in CLIENTS:
            found = pair(subject, find(name))
            cells = [
                "refused | -" if each is None else f"{_lost(each):,} | {each.misses}"
                for each in (found.alone, found.through)
            ]
            ceiling = f"{100 * (found.through.ceiling_share or 0):.1f} %"
            note = "" if found.same else " (saw something else)"
            if found.declared:
                note = f"{note} (declared: {', '.join(found.declared)})"
            line = f"| {name} | {subject.name}, {WIRES[subject.wire]} | {cells[0]} | {cells[1]} |"
            yield f"{line} {ceiling}{note} |", found.holds


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    given = list(arguments)
    page = None
    if "--write" in given:
        at = given.index("--write")
        page = Path(given[at + 1])
        del given[at : at + 2]
    names = given or [name for name in bundled() if can_be_played(find(name))]
    lines = [
        "| scenario | client | alone: not read | misses | through | misses | of ceiling |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    print("\n".join(lines))
    worse = 0
    for line, holds in rows(names):
        print(line, flush=True)
        lines.append(line)
        worse += not holds
    if page is not None:
        before, _, rest = page.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text("".join((before, BEGIN, "\n".join(lines), "\n", END, after)), "utf-8")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
