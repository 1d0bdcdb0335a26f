"""Tool search: a fixed tool with which the model finds what is not bound, and its answer.

The tool's own bytes never depend on what can be found. The answer is JSON text that stays in the
history as it is: full names, whole parameter schemas within a budget, names only beyond it.
Ranking is BM25 over names, descriptions and arguments, with ties by name, so the same tools and
the same query give the same bytes in every process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any, cast

from msgspec import Raw

from addendum import encoding
from addendum.errors import ContentError
from addendum.log.values import ToolSchema
from addendum.tools.ranking import Entry, Indexes

TOOL_SEARCH_NAME = "tool_search"
"""Name of the tool with which a model looks for tools."""

MAX_QUERY = 200
"""Characters of a query."""

MAX_RESULTS = 50
"""Tools that one search may return."""

BUDGET = 32_000
"""Bytes of names, descriptions and schemas in one answer: about 8,000 tokens."""

TOOL_SEARCH = ToolSchema(
    TOOL_SEARCH_NAME,
    "Find tools that can be used in this conversation although they are not in the list of tools "
    "given with the request. Search by words for what you want to do, or by a tool's name; name a "
    "server without a query to list what it offers. The answer holds full names, descriptions and "
    "parameter schemas, and says how to call what was found.",
    Raw(
        encoding.encode(
            {
                "type": "object",
                "properties": {
                    "query": {
                        "type": "string",
                        "maxLength": MAX_QUERY,
                        "description": "Words that describe the task, or a tool's name. Leave it "
                        "out to list a server's tools.",
                    },
                    "max_results": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MAX_RESULTS,
                        "default": 5,
                        "description": "How many tools to return at most.",
                    },
                    "server": {
                        "anyOf": [
                            {"type": "string"},
                            {"type": "array", "items": {"type": "string"}},
                        ],
                        "description": "Look only at tools of this server, or of these servers.",
                    },
                },
                "additionalProperties": False,
            }
        )
    ),
)
"""The fixed tool; the same bytes in every request."""

THEN_DISPATCH = (
    "Call a tool from this list with call_tool: its full name in `name`, its parameters by the "
    "schema shown in `arguments`."
)
THEN_NATIVE = "Call a tool from this list by its full name, with parameters by the schema shown."
THEN_LIST = "Search for a name from this list to see its parameters before you call it."
_NOTE_NONE = "No tool matches. Try other words, fewer words, or a server's name without a query."
_NOTE_EMPTY = "There are no tools to be found at the moment; use those you were given."

_INDEXES = Indexes()


def search(
    tools: Sequence[Entry],
    query: str = "",
    *,
    server: str | Sequence[str] = (),
    max_results: int = 5,
    dispatch: bool = True,
    budget: int = BUDGET,
    servers: Collection[str] = (),
) -> str:
    """Answer a search as JSON text.

    Args:
        tools: What may be found: only tools that could be called. Order does not count.
        query: Words, or a tool's name; cut to `MAX_QUERY` characters. Empty lists all names.
        server: Only tools of these servers; case, separators and an `mcp` prefix do not count.
        max_results: Most tools to return, 1 to `MAX_RESULTS`.
        dispatch: Whether what is found is called through the dispatcher.
        budget: Bytes that tools may take in the answer. A schema is shown whole or not at all.
        servers: Names of all servers, to tell one without tools from one that is unknown.

    Returns:
        An object with `found` (number of matches), `tools`, `more` (names left out of `tools`),
        `note` (why nothing was found) and `then` (what to do next).
    """
    asked = [server] if isinstance(server, str) else list(server)
    pool = tools
    if wanted := [name for name in asked if name.strip()]:
        keys = {_server_key(name) for name in wanted}
        own = {name for name in {name for _, name in tools} if name and _server_key(name) in keys}
        pool = [entry for entry in tools if entry[1] in own]
    query = query.strip()[:MAX_QUERY]
    if not pool:
        known = set(servers) | {name for _, name in tools if name}
        return _text({"found": 0, "tools": [], "note": _nothing(wanted, known, bool(tools))})
    if not query:
        return _listing(pool, budget)
    most = max(1, min(max_results, MAX_RESULTS))
    count, best = _INDEXES.of(pool).best(query, most)
    if not count:
        return _text({"found": 0, "tools": [], "note": _NOTE_NONE})
    return _found(count, [pool[place] for place in best], budget, dispatch)


def answer(
    arguments: str | bytes,
    tools: Sequence[Entry],
    *,
    dispatch: bool = True,
    budget: int = BUDGET,
    servers: Collection[str] = (),
) -> str:
    """Answer a call of `tool_search`.

    Args:
        arguments: JSON text of its arguments, checked against its schema before.
        tools: As for `search`.
        dispatch: As for `search`.
        budget: As for `search`.
        servers: As for `search`.

    Raises:
        ContentError: The arguments are no JSON object.
    """
    asked = encoding.decode(arguments or b"{}")
    if not isinstance(asked, dict):
        raise ContentError(f"the arguments of {TOOL_SEARCH_NAME} must be a JSON object")
    given = cast("dict[str, Any]", asked)
    return search(
        tools,
        given.get("query", ""),
        server=given.get("server", ()),
        max_results=int(given.get("max_results", 5)),
        dispatch=dispatch,
        budget=budget,
        servers=servers,
    )


def _found(count: int, best: list[Entry], budget: int, dispatch: bool) -> str:
    shown: list[dict[str, Any]] = []
    more: list[str] = []
    for tool, server in best:
        entry: dict[str, Any] = {"name": tool.name, "description": tool.description}
        if server:
            entry["server"] = server
        entry["parameters"] = tool.parameters if bytes(tool.parameters) else Raw(b"{}")
        size = len(encoding.encode(entry))
        if size <= budget:
            budget -= size
            shown.append(entry)
        else:
            more.append(tool.name)
    body: dict[str, Any] = {"found": count, "tools": shown}
    if more:
        body["more"] = more
    return _text({**body, "then": THEN_DISPATCH if dispatch else THEN_NATIVE})


def _listing(pool: Sequence[Entry], budget: int) -> str:
    names: list[str] = []
    for name in sorted(tool.name for tool, _ in pool):
        budget -= len(name) + 3
        if budget < 0:
            break
        names.append(name)
    body: dict[str, Any] = {"found": len(pool), "tools": [], "more": names}
    if len(names) < len(pool):
        body["note"] = f"{len(pool) - len(names)} names were left out; search by words for them."
    return _text({**body, "then": THEN_LIST})


def _nothing(wanted: list[str], known: Collection[str], any_tools: bool) -> str:
    if not wanted:
        return _NOTE_EMPTY
    keys = {_server_key(name): name for name in sorted(known)}
    unknown = [name for name in wanted if _server_key(name) not in keys]
    if not unknown:
        return "This server has no tools to be found at the moment. " + (
            "Search without a server." if any_tools else _NOTE_EMPTY
        )
    near = get_close_matches(_server_key(unknown[0][:100]), keys, n=3)
    hint = f" Did you mean {', '.join(keys[key] for key in near)}?" if near else ""
    return f"There is no server of this name.{hint} Search without a server to look everywhere."


def _server_key(name: str) -> str:
    key = re.sub(r"[\W_]+", "", name.casefold())
    return key.removeprefix("mcp") or key


def _text(body: dict[str, Any]) -> str:
    return encoding.encode(body).decode()
