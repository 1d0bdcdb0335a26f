"""What an endpoint takes of a tool's definition: data, by wire, provider and row of models."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Refs: TypeAlias = Literal["any", "defs", "none"]


class SchemaRules(Struct, frozen=True, forbid_unknown_fields=True):
    """What a definition has to be like, so that an endpoint takes the request that holds it.

    A wire's rules hold for all its routes (`wires.toml`); a provider's and a row's `schemas` state
    what is otherwise there. 0 and empty text mean that there is no such rule.

    Attributes:
        at_top: Keywords that may not stand at the top of a schema.
        properties: Whether an object at the top has to have `properties`, an empty one at least.
        items: Whether an array has to have `items`.
        typed: Whether every part has to say its type, or be a union of parts that do.
        type_beside_unions: Whether `type` may stand beside `anyOf`; else it stands in its branches.
        keys: Regular expression that each whole key of `properties` at the top has to match.
        refs: References that are taken: `any` inside the schema, those to `#/$defs/` (`defs`), or
            `none`.
        left_out: Keywords that are taken nowhere.
        patterns: Regular expressions that are taken: `any`, or `anchored` ones of plain parts only,
            between `^` and `$`.
        description: Characters of a tool's description.
        tools: Tools that a request may declare.
        depth: Levels of a schema.
        size: Bytes of a schema.
        source: Where this comes from.
        checked: Day on which that was read, `YYYY-MM-DD`.
    """

    at_top: tuple[str, ...] = ()
    properties: bool = False
    items: bool = False
    typed: bool = False
    type_beside_unions: bool = True
    keys: str = ""
    refs: Refs = "any"
    left_out: tuple[str, ...] = ()
    patterns: Literal["any", "anchored"] = "any"
    description: Annotated[int, Meta(ge=0)] = 0
    tools: Annotated[int, Meta(ge=0)] = 0
    depth: Annotated[int, Meta(ge=0)] = 0
    size: Annotated[int, Meta(ge=0)] = 0
    source: str = ""
    checked: str = ""
