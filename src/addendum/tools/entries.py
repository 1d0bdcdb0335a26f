"""A tool that can be run, and its terms: all that a decision about it is bound to.

Policies read a tool's name, its server and its hints; who approves a call reads its definition as
well. Whoever allows a tool allows it on these terms, and each of them may change while a session
lasts: the digest of all of them says whether it is still the tool that was meant.

Hints are the word of a tool's maker. What nobody says is the strict answer: it may change things,
and destroy them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from addendum import encoding
from addendum.log.known import KnownTool
from addendum.log.values import ToolSchema
from addendum.tools.search import TOOL_SEARCH_NAME
from addendum.tools.servers import Run


class Hints(Struct, frozen=True):
    """What a tool's maker says of it.

    Attributes:
        read_only: Whether a call changes nothing.
        destructive: Whether a call may destroy.
    """

    read_only: bool = False
    destructive: bool = True

    def stricter(self, other: Hints) -> Hints:
        """Return what both say: never more harmless than either."""
        return Hints(
            self.read_only and other.read_only,
            self.destructive or other.destructive,
        )

    def annotations(self) -> Raw | None:
        """Return the hints as a server would give them; None if nothing is said."""
        if self.read_only:
            return Raw(b'{"readOnlyHint":true}')
        return None if self.destructive else Raw(b'{"destructiveHint":false}')


UNSAID = Hints()
"""The hints of a tool of which nobody says anything."""

SEARCHES = Hints(read_only=True, destructive=False)
"""The hints of `tool_search`."""


class ToolEntry(Struct, frozen=True):
    """A tool that can be run.

    Attributes:
        schema: As the model sees it.
        run: Runs it; exceptions are turned into error results by whoever calls.
        server: The server it comes from, if any.
        timeout: Its own time limit in seconds, if any.
        annotations: Hints as a JSON object, where they are known: its server's, or our own.
        own: The server's own name for it.
        reaches: For a function that reads servers: names those that a call with these arguments
            would reach. None where the tool's own server says it.
    """

    schema: ToolSchema
    run: Run
    server: str | None = None
    timeout: float | None = None
    annotations: Raw | None = None
    own: str | None = None
    reaches: Callable[[Mapping[str, Any]], Collection[str]] | None = None

    def servers(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the servers that a call with these arguments would reach."""
        if self.reaches is not None:
            return tuple(self.reaches(arguments))
        return () if self.server is None else (self.server,)

    @property
    def hints(self) -> Hints:
        """What its maker says of it."""
        if self.schema.name == TOOL_SEARCH_NAME:
            return SEARCHES
        return hints_in(self.annotations)

    @property
    def terms(self) -> str:
        """Digest of all that a decision about it is bound to."""
        return terms(self.schema, self.server, self.hints)

    def record(self) -> KnownTool:
        """Return what a log keeps of it beside its definition."""
        hints, own = self.hints, self.own
        if self.schema.name == f"{self.server}__{own}":
            own = None
        return KnownTool(self.schema.name, self.server, hints.read_only, hints.destructive, own)

    def with_hints(self, hints: Hints) -> ToolEntry:
        """Return the tool as if its maker said this of it."""
        if hints == self.hints:
            return self
        return msgspec.structs.replace(self, annotations=hints.annotations())


class Snapshot(Struct, frozen=True):
    """What is active at one step.

    Attributes:
        entries: Active tools by name, in assembly order.
        instructions: Text of the servers whose tools are active, by server.
        active: The active definitions in assembly order; the same object as before, as long as
            they are the same.
        unused: Tools as they are now, by name, where the session goes on with what it had.
    """

    entries: Mapping[str, ToolEntry]
    instructions: Mapping[str, str]
    active: tuple[ToolSchema, ...]
    unused: Mapping[str, ToolEntry] = {}


def hints_in(annotations: Raw | None) -> Hints:
    """Return the hints in a tool's annotations, a JSON object."""
    return UNSAID if annotations is None else _hints(bytes(annotations))


@lru_cache(maxsize=1_000)
def _hints(annotations: bytes) -> Hints:
    value: Any = encoding.decode(annotations)
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    read_only = given.get("readOnlyHint") is True
    return Hints(read_only, not read_only and given.get("destructiveHint") is not False)


def hints_known(record: KnownTool) -> Hints:
    """Return the hints that a log keeps of a tool."""
    return Hints(record.read_only, record.destructive)


def unrecorded(name: str) -> KnownTool | None:
    """Return what is known of a tool that no log's event speaks of; None if nothing is.

    A function of which nobody says anything has no event. A name that could be a server's always
    has one, in a log that keeps such events at all.
    """
    if name == TOOL_SEARCH_NAME:
        return KnownTool(name, None, SEARCHES.read_only, SEARCHES.destructive)
    return None if "__" in name else KnownTool(name)


def definition(tool: ToolSchema) -> str:
    """Return the digest of a definition; whether it is deferred does not count."""
    return tool.definition()


def terms(tool: ToolSchema, server: str | None, hints: Hints) -> str:
    """Return the digest of a tool's terms.

    Args:
        tool: Its definition.
        server: The server that it comes from; None for a function.
        hints: What its maker says of it.
    """
    digest = definition(tool)
    return digest if server is None and hints == UNSAID else _terms(digest, server, hints)


@lru_cache(maxsize=50_000)
def _terms(digest: str, server: str | None, hints: Hints) -> str:
    parts = [digest, server, hints.read_only, hints.destructive]
    return encoding.digest(encoding.encode(parts))


def is_excluded(name: str, patterns: Collection[str]) -> bool:
    """Say whether a tool does not exist in a session.

    Args:
        name: Its real name.
        patterns: What is excluded: names, exact or as glob patterns.
    """
    return name != TOOL_SEARCH_NAME and any(
        name == pattern or fnmatchcase(name, pattern) for pattern in patterns
    )
