"""Dead weight: how much of a request defines tools that it no longer offers so.

A definition is dead where its tool was removed, or defined anew later. It is carried along because
taking it out would change bytes that were sent; a consolidation drops it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw, Struct

from addendum.log.values import ToolSchema
from addendum.prompt.blocks import Change, Prompt, Text
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.tools.search import TOOL_SEARCH_NAME

_OPEN, _CLOSE = "<tool_update>", "</tool_update>"
_OURS = frozenset({TOOL_DISPATCHER_NAME, TOOL_SEARCH_NAME})


class _Entry(Struct):
    name: str
    description: str = ""
    parameters: Raw = Raw(b"{}")


class _Update(Struct):
    added: tuple[_Entry, ...] = ()
    changed: tuple[_Entry, ...] = ()


def dead_bytes(prompt: Prompt, active: Iterable[ToolSchema]) -> int:
    """Return the bytes of definitions in a request that no active tool has.

    Deferred declarations stand outside the prompt until a block brings them in, and count there.

    Args:
        prompt: What the request says.
        active: The tools that are active in it.
    """
    live = {tool.name for tool in active} | _OURS
    latest: dict[str, int] = {}
    dead = 0
    for name, size in _definitions(prompt):
        dead += latest.get(name, 0)
        latest[name] = size
    return dead + sum(size for name, size in latest.items() if name not in live)


def _definitions(prompt: Prompt) -> Iterator[tuple[str, int]]:
    """Yield each definition's name and bytes, in the order in which the model reads them."""
    declared = {tool.name: tool for tool in prompt.tools}
    told: set[str] = set()
    for tool in prompt.tools:
        if not tool.defer_loading:
            told.add(tool.name)
            yield tool.name, _size(tool.name, tool.description, tool.parameters)
    for block in prompt.blocks:
        if isinstance(block, Change) and block.added:
            tool = block.definition or declared.get(block.name)
            if tool is not None and (block.definition is not None or block.name not in told):
                told.add(block.name)
                yield block.name, _size(tool.name, tool.description, tool.parameters)
        elif isinstance(block, Text) and block.purpose == "announcement":
            if block.text.startswith(_OPEN):
                inner = block.text.removeprefix(_OPEN).removesuffix(_CLOSE)
                update = msgspec.json.decode(inner, type=_Update)
                for entry in update.added + update.changed:
                    yield entry.name, _size(entry.name, entry.description, entry.parameters)


def _size(name: str, description: str, parameters: Raw) -> int:
    return len(name) + len(description.encode()) + len(bytes(parameters))
