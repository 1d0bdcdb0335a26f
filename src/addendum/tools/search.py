"""Tool search: a fixed tool with which the model finds what is not bound, and its answer.

The tool's own bytes never depend on what can be found. The answer is JSON text that stays in the
history as it is: full names, whole parameter schemas within a budget, names only beyond it.
Ranking is BM25 over names, descriptions and arguments, with ties by name, so the same tools and
the same query give the same bytes in every process.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeAlias, cast

from msgspec import Raw

from addendum import encoding
from addendum.errors import ContentError
from addendum.log.values import ToolSchema

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

Entry: TypeAlias = tuple[ToolSchema, str | None]
"""A tool that may be found, and the server it comes from."""


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
    pool = sorted(tools, key=lambda entry: entry[0].name)
    if wanted := [name for name in asked if name.strip()]:
        keys = {_server_key(name) for name in wanted}
        pool = [entry for entry in pool if entry[1] and _server_key(entry[1]) in keys]
    query = query.strip()[:MAX_QUERY]
    if not pool:
        known = set(servers) | {name for _, name in tools if name}
        return _text({"found": 0, "tools": [], "note": _nothing(wanted, known, bool(tools))})
    if not query:
        return _listing(pool, budget)
    ranked = _rank(pool, query)
    if not ranked:
        return _text({"found": 0, "tools": [], "note": _NOTE_NONE})
    return _found(ranked, max(1, min(max_results, MAX_RESULTS)), budget, dispatch)


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


def _found(ranked: list[Entry], most: int, budget: int, dispatch: bool) -> str:
    shown: list[dict[str, Any]] = []
    more: list[str] = []
    for tool, server in ranked[:most]:
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
    body: dict[str, Any] = {"found": len(ranked), "tools": shown}
    if more:
        body["more"] = more
    return _text({**body, "then": THEN_DISPATCH if dispatch else THEN_NATIVE})


def _listing(pool: list[Entry], budget: int) -> str:
    names: list[str] = []
    for tool, _ in pool:
        budget -= len(tool.name) + 3
        if budget < 0:
            break
        names.append(tool.name)
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


# Ranking

_K1, _B = 1.2, 0.75
_WEIGHTS = {"name": 6, "description": 2, "argument": 2, "detail": 1}
_MOST_TERMS = 2_000  # of one tool: a longer text gains nothing but time
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
# Scripts written without spaces: Thai to Myanmar, Khmer, kana, Han, Hangul.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_DENSE}]+|[^{_DENSE}]+")
_IS_DENSE = re.compile(f"[{_DENSE}]")


def terms(text: str) -> Iterator[str]:
    """Yield words without case, accents and plural `s`, or pairs of characters without spaces."""
    plain = unicodedata.normalize("NFKD", text)
    plain = unicodedata.normalize("NFC", re.sub("[\u0300-\u036f]", "", plain))
    for word in _WORD.findall(_CAMEL.sub(" ", plain).casefold()):
        for run in _RUN.findall(word):
            if not _IS_DENSE.match(run):
                yield run[:-1] if len(run) > 3 and run[-1] == "s" and run[-2] != "s" else run
            elif len(run) == 1:
                yield run
            else:
                yield from (run[place : place + 2] for place in range(len(run) - 1))


@lru_cache(maxsize=4096)
def _document(name: str, description: str, parameters: bytes) -> Counter[str]:
    document: Counter[str] = Counter()
    fields = [("name", name), ("description", description), *_argument_texts(parameters)]
    for kind, text in fields:
        for term in terms(text[:20_000]):
            if len(document) < _MOST_TERMS or term in document:
                document[term] += _WEIGHTS[kind]
    return document


def _argument_texts(parameters: bytes) -> list[tuple[str, str]]:
    """Return names and descriptions of arguments, nested ones included."""
    try:
        stack: list[Any] = [encoding.decode(parameters or b"{}")]
    except ContentError:
        return []
    found: list[tuple[str, str]] = []
    while stack and len(found) < 500:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(cast("list[Any]", node))
        if not isinstance(node, dict):
            continue
        schema = cast("dict[str, Any]", node)
        properties = schema.get("properties")
        if isinstance(properties, dict):
            found.extend(("argument", name) for name in cast("dict[str, Any]", properties))
        if isinstance(detail := schema.get("description"), str):
            found.append(("detail", detail))
        stack.extend(schema.values())
    return found


def _rank(pool: list[Entry], query: str) -> list[Entry]:
    """Return the matching tools, best first: an exact name, then by score, then by name."""
    documents = [_document(tool.name, tool.description, bytes(tool.parameters)) for tool, _ in pool]
    exact = _exact(pool, query)
    wanted = [_meant(term, documents) for term in sorted(set(terms(query)))]
    lengths = [document.total() for document in documents]
    mean = sum(lengths) / len(lengths) or 1.0
    scored: list[tuple[bool, float, str, Entry]] = []
    rarity = [
        math.log(1 + len(pool) / (1 + sum(_count(document, meant) > 0 for document in documents)))
        for meant in wanted
    ]
    for entry, document, length in zip(pool, documents, lengths, strict=True):
        score = 0.0
        for meant, weight in zip(wanted, rarity, strict=True):
            count = _count(document, meant)
            score += weight * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length / mean))
        first = entry[0].name in exact
        if score > 0 or first:
            scored.append((not first, -round(score, 9), entry[0].name, entry))
    return [entry for *_, entry in sorted(scored, key=lambda found: found[:3])]


def _meant(term: str, documents: Iterable[Counter[str]]) -> tuple[str, ...]:
    """Return the term, or where no tool has it, the terms that begin with (a sign: hold) it."""
    longer: set[str] = set()
    for document in documents:
        if term in document:
            return (term,)
        if len(term) >= 3:
            longer.update(found for found in document if found.startswith(term))
        elif _IS_DENSE.match(term):
            longer.update(found for found in document if term in found)
    return tuple(sorted(longer))


def _count(document: Counter[str], meant: tuple[str, ...]) -> int:
    return sum(document[term] for term in meant)


def _exact(pool: list[Entry], query: str) -> frozenset[str]:
    """Return names that the query spells: the full one, else one without its server."""

    def same(text: str) -> str:
        return re.sub(r"[\W_]+", "_", text.casefold())

    wanted = same(query)
    full = frozenset(tool.name for tool, _ in pool if same(tool.name) == wanted)
    return full or frozenset(
        tool.name for tool, _ in pool if same(tool.name.rpartition("__")[2]) == wanted
    )
