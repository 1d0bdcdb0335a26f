"""References in a parameter schema, written out where an endpoint does not follow them."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from addendum import encoding
from addendum.routes.schemas import Refs
from addendum.tools.references import Json, References, Schema, SchemaUnusable, inner_base
from addendum.tools.schema_slips import over_parts, parts_of
from addendum.wire.schema_parts import table

MAX_PARTS = 3_000
"""Parts that a schema may have once its references are written out."""

MAX_WITHIN = 30
"""References that are followed inside each other."""

SHALLOW = ("type", "title", "description")
"""Keywords that stay of a part that is not shown whole."""

_NAMES = ("$id", "$anchor", "$defs", "definitions", "$dynamicAnchor")


def referring(value: Schema, taken: Refs, losses: dict[str, None]) -> Schema:
    """Return a schema that refers to nothing that the endpoint does not follow.

    Args:
        value: The schema.
        taken: References that may stay.
        losses: Told of what cannot be written out.
    """
    raw = encoding.encode(value)
    if not any(word in raw for word in (b'"$ref"', b'"$dynamicRef"', b'"$recursiveRef"')):
        return value
    try:
        return _Writer(References(value), taken, losses).written(value)
    except SchemaUnusable:
        losses["dynamic references"] = None
        return cast("Schema", without(value, ("$ref", "$dynamicRef", "$recursiveRef")))


def all_lead_somewhere(value: Schema) -> bool:
    """Say whether every reference in a schema names a part of it."""
    if b'"$ref"' not in encoding.encode(value):
        return True
    references = References(value)
    stack: list[tuple[Json, Json]] = [(value, value)]
    while stack:
        part, base = stack.pop()
        if not isinstance(part, dict):
            continue
        schema = cast("Schema", part)
        base = inner_base(schema, base)
        if isinstance(schema.get("$ref"), str):
            try:
                references.resolve(schema["$ref"], base)
            except SchemaUnusable:
                return False
        stack.extend((below, base) for below in parts_of(schema))
    return True


class _Writer:
    """Writes out what references lead to.

    Args:
        references: Those of the schema.
        taken: Which may stay; one at the top never does.
        losses: Told of what cannot be written out.
    """

    def __init__(self, references: References, taken: Refs, losses: dict[str, None]) -> None:
        self._references = references
        self._taken = taken
        self._losses = losses
        self._parts = 0

    def written(self, root: Schema) -> Schema:
        """Return the schema without the references that are not taken."""
        value = cast("Schema", self._written(root, root, (), top=True))
        if self._taken == "none":
            return cast("Schema", without(value, _NAMES))
        if self._taken == "defs" and "definitions" in value:
            moved = {**table(value.get("definitions")), **table(value.get("$defs"))}
            value = {name: part for name, part in value.items() if name != "definitions"}
            value["$defs"] = moved
        return value

    def _written(self, part: Json, base: Json, within: tuple[int, ...], *, top: bool) -> Json:
        if not isinstance(part, dict):
            return part
        schema = cast("Schema", part)
        self._parts += 1
        if self._parts > MAX_PARTS or len(within) > MAX_WITHIN:
            self._losses["a part of its parameters, which are too many"] = None
            return {name: schema[name] for name in SHALLOW if name in schema}
        base = inner_base(schema, base)
        reference: Json = schema.get("$ref")
        skipped = {"$ref"} | (set[str]() if self._taken != "none" else {"$defs", "definitions"})
        rest = {name: each for name, each in schema.items() if name not in skipped}
        rest = over_parts(rest, lambda below: self._written(below, base, within, top=False))
        if not isinstance(reference, str):
            return rest
        try:
            target, start = self._references.resolve(reference, base)
        except SchemaUnusable:
            self._losses["what a reference names that leads nowhere"] = None
            return rest
        if not top and (kept := self._kept(reference)):
            return {"$ref": kept, **rest}
        if not isinstance(target, dict):
            return rest if target is True or target is part else target
        known = cast("Schema", target)
        if id(known) in within or known is schema:
            self._losses["what stands inside itself, more than once"] = None
            shown = {name: known[name] for name in SHALLOW if name in known}
            return {**shown, **rest}
        found = self._written(known, start, (*within, id(known)), top=top)
        return {**cast("Schema", found), **rest} if isinstance(found, dict) else rest

    def _kept(self, reference: str) -> str:
        """Return a reference as it may stay; empty if it may not."""
        if self._taken == "any":
            return reference
        head, _, name = reference.rpartition("/")
        local = head in ("#/$defs", "#/definitions")
        return f"#/$defs/{name}" if self._taken == "defs" and local else ""


def without(schema: Json, names: Collection[str]) -> Json:
    """Return a schema without some keywords, in all its parts."""
    if not isinstance(schema, dict):
        return schema
    kept = {n: part for n, part in cast("Schema", schema).items() if n not in names}
    return over_parts(kept, lambda part: without(part, names))
