"""Local references of a JSON Schema: what `$ref` names inside the schema itself.

A reference that leads outside is not followed and never fetched. Known targets are JSON pointers
(`#/$defs/x`), the whole (`#`), anchors (`#x`) and parts of the schema that carry an `$id`, named by
exactly that text.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from addendum.errors import ContentError

Json: TypeAlias = Any
"""Decoded JSON."""

Schema: TypeAlias = dict[str, Any]
"""A schema object; boolean schemas are handled where they are met."""


class SchemaUnusable(ContentError):
    """A parameter schema cannot be compiled or applied; the message says why."""


class References:
    """Where the references of one schema lead.

    Attributes:
        present: Whether the schema has any reference.
        nodes: JSON values in the schema.
    """

    __slots__ = ("_anchors", "_parts", "nodes", "present")

    def __init__(self, root: Json) -> None:
        """Look through the schema once.

        Args:
            root: The decoded schema.

        Raises:
            SchemaUnusable: It uses dynamic references, or names two parts alike.
        """
        self.present = False
        self.nodes = 0
        self._parts: dict[str, Schema] = {}
        self._anchors: dict[str, Schema] = {}
        stack: list[Json] = [root]
        while stack:
            node = stack.pop()
            self.nodes += 1
            if isinstance(node, dict):
                schema = cast("Schema", node)
                self._look(schema)
                stack.extend(schema.values())
            elif isinstance(node, list):
                stack.extend(cast("list[Json]", node))

    def _look(self, schema: Schema) -> None:
        if isinstance(schema.get("$ref"), str):
            self.present = True
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if isinstance(schema.get(keyword), str):
                raise SchemaUnusable(f"{keyword} is not supported; use $ref with local $defs")
        for keyword, known in (("$id", self._parts), ("$anchor", self._anchors)):
            name = schema.get(keyword)
            if not isinstance(name, str):
                continue
            if name.startswith("#"):
                name, known = name[1:], self._anchors
            if known.setdefault(name, schema) is not schema:
                raise SchemaUnusable(f"two parts of the schema are named {name[:100]!r}")

    def resolve(self, reference: str, base: Json) -> tuple[Json, Json]:
        """Return the subschema a reference names, and the part its own references start from.

        Args:
            reference: The text of `$ref`.
            base: The part with an `$id` (or the root) in which the reference stands.

        Raises:
            SchemaUnusable: It leads nowhere, or out of the schema.
        """
        head, _, fragment = reference.partition("#")
        start = self._parts.get(head) if head else base
        if start is None:
            raise SchemaUnusable(f"$ref {reference[:100]!r} leads out of the schema")
        if not fragment:
            return start, start
        if not fragment.startswith("/"):
            anchor = self._anchors.get(fragment)
            if anchor is None:
                raise SchemaUnusable(f"$ref {reference[:100]!r} leads nowhere")
            return anchor, start
        node: Json = start
        for step in fragment[1:].split("/"):
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                if isinstance(node, dict):
                    node = cast("Schema", node)[key]
                    start = inner_base(node, start)
                else:
                    node = cast("list[Json]", node)[int(key)]
            except (KeyError, IndexError, ValueError, TypeError) as error:
                raise SchemaUnusable(f"$ref {reference[:100]!r} leads nowhere") from error
        return node, start


def inner_base(schema: Json, base: Json) -> Json:
    """Return where references inside `schema` start from: itself if it has an `$id` of its own."""
    if isinstance(schema, dict):
        name = cast("Schema", schema).get("$id")
        if isinstance(name, str) and not name.startswith("#"):
            return cast("Schema", schema)
    return base
