"""Time of `tool_search` over 10,000 tools, beside SQLite's FTS5 on the same tools and words.

    python bench/search.py [TOOLS]

The tools are those of real servers (`tests/data/mcp_tools.json`), told again under other server
names until there are enough. A query is one of the questions in `tests/data`; both sides look for
its words without stop words and give the best five. Ours also looks for words that mean the same,
and its time includes the answer's JSON text.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.log.values import ToolSchema
from addendum.tools.ranking import Entry, Index
from addendum.tools.search import search

DATA = Path(__file__).parents[1] / "tests" / "data"
ROUNDS = 5


def tools(count: int) -> list[Entry]:
    """Return so many tools of real servers."""
    servers: list[dict[str, Any]] = json.loads((DATA / "mcp_tools.json").read_text("utf-8"))
    found: list[Entry] = []
    copy = 0
    while len(found) < count:
        for server in servers:
            name = f"{server['server']}{copy or ''}"
            for tool in server["tools"]:
                parameters = Raw(encoding.encode(tool["parameters"]))
                schema = ToolSchema(f"{name}__{tool['name']}", tool["description"], parameters)
                found.append((schema, name))
        copy += 1
    return found[:count]


def questions() -> list[str]:
    """Return all questions."""
    files = ("search_questions.json", "search_questions_later.json")
    return [each["question"] for name in files for each in json.loads((DATA / name).read_text())]


def seconds(work: Callable[[], Any]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fts5(pool: list[Entry]) -> sqlite3.Connection:
    """Return a full-text table of the tools, in memory."""
    table = sqlite3.connect(":memory:")
    table.execute("create virtual table tools using fts5(name, text, tokenize='porter unicode61')")
    rows = [
        (tool.name, f"{tool.description} {bytes(tool.parameters).decode()}") for tool, _ in pool
    ]
    table.executemany("insert into tools values (?, ?)", rows)
    table.commit()
    return table


def asked(table: sqlite3.Connection, query: str) -> list[Any]:
    """Ask FTS5 for the best five of the tools that have any of the words."""
    sql = "select name from tools where tools match ? order by bm25(tools, 9, 1) limit 5"
    return table.execute(sql, (query,)).fetchall()


def main(count: int) -> int:
    """Print the times; return 1 if a query takes more than twice FTS5's time."""
    pool = tools(count)
    schemas = [tool for tool, _ in pool]
    index: list[Index] = []
    first = seconds(lambda: index.append(Index(schemas)))
    again = seconds(lambda: Index(schemas))
    table: list[sqlite3.Connection] = []
    theirs_index = seconds(lambda: table.append(fts5(pool)))
    ours: list[float] = []
    theirs: list[float] = []
    cold: list[float] = []
    search(pool, "warm")
    for number in range(ROUNDS):
        for text in questions():
            words = " OR ".join(f'"{word}"' for word in index[0].wanted(text))
            took = seconds(lambda text=text: search(pool, text))
            (ours if number else cold).append(took)
            theirs.append(seconds(lambda words=words: asked(table[0], words)))
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(f"{count:,} tools, {len(questions())} questions, median of {ROUNDS} rounds")
    print(f"  {'':24}{'tool_search':>12}{'FTS5':>12}")
    print(f"  {'index, first time':24}{first:>10.2f} s{theirs_index:>10.2f} s")
    print(f"  {'index, texts known':24}{again:>10.2f} s")
    print(f"  {'query, words not seen':24}{statistics.median(cold) * 1e3:>9.2f} ms")
    print(f"  {'query':24}{mine * 1e3:>9.2f} ms{other * 1e3:>9.2f} ms")
    print(f"  {'slowest query':24}{max(ours) * 1e3:>9.2f} ms{max(theirs) * 1e3:>9.2f} ms")
    print(f"  ours / FTS5: {mine / other:.2f} (at most 2)")
    return 0 if mine <= 2 * other else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
