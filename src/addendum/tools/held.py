"""Tools that stay as they were, whatever becomes of them: what a session goes on with.

Its definition is the one that the session had; of all hints so far the stricter ones count, so a
server can only make its tool more harmful; and one that comes from elsewhere by now is not used.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from addendum.log.known import KnownTool
from addendum.log.values import ToolSchema
from addendum.tools.entries import ToolEntry, definition, hints_in, hints_known, unrecorded
from addendum.tools.mcp.values import RemoteTool
from addendum.tools.servers import Same, as_logged


class Held(Struct, frozen=True):
    """The tools that stay as they were.

    Attributes:
        definitions: Their definitions, by name.
        records: What is known of them beside, by name.
    """

    definitions: Mapping[str, ToolSchema] = {}
    records: Mapping[str, KnownTool] = {}

    def kept(self, entry: ToolEntry) -> ToolEntry | None:
        """Return what a session goes on with in place of a tool as it is now; None if nothing."""
        name = entry.schema.name
        held, record = self.definitions[name], self.records.get(name, unrecorded(name))
        if record is not None:
            if record.server != entry.server:
                return None
            entry = entry.with_hints(hints_known(record).stricter(entry.hints))
        if definition(held) == definition(entry.schema):
            return entry
        return msgspec.structs.replace(entry, schema=held)

    def same(self, schema: ToolSchema, annotations: Raw | None) -> Same:
        """Return what says whether a listed tool is still the one that calls were judged by.

        Args:
            schema: Its definition.
            annotations: What its server said of it.
        """

        def same(tool: RemoteTool) -> bool:
            listed, said = hints_in(tool.annotations), hints_in(annotations)
            if schema.name in self.definitions:
                record = self.records.get(schema.name, unrecorded(schema.name))
                kept = said if record is None else hints_known(record)
                return kept.stricter(listed) == kept
            made = ToolSchema(schema.name, tool.description, tool.parameters)
            made = as_logged(made, schema)
            return definition(made) == definition(schema) and listed == said

        return same
