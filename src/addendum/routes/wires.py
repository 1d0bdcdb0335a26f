"""What is known of the wire APIs, as data: what all routes of a wire have in common.

How a wire is spoken is code (`addendum.wire`); what it can be told, and what an endpoint of it may
refuse, stands in `wires.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from addendum.errors import ConfigurationError
from addendum.routes.schemas import SchemaRules
from addendum.routes.shapes import ShapeRules

Changes: TypeAlias = Literal["blocks", "definitions", "none"]


class ChangeFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Names in a request that tells of tool changes, which an endpoint may refuse.

    Attributes:
        always: In every such request.
        removals: Where removals are told as blocks.
        by_value: Where an addition carries its definition.
        by_reference: Where it names a declared tool.
        placeholder: Where a deferred placeholder is declared.
    """

    always: tuple[str, ...] = ()
    removals: tuple[str, ...] = ()
    by_value: tuple[str, ...] = ()
    by_reference: tuple[str, ...] = ()
    placeholder: tuple[str, ...] = ()


class WireData(Struct, frozen=True, forbid_unknown_fields=True):
    """A wire API.

    Attributes:
        changes: How tool changes can be told in mid-conversation: by `blocks` for additions and
            removals, by value or by reference; by `definitions` of what is added only; or `none`.
        fields: What such a request holds that an endpoint may refuse.
        cache: Cache rules of its routes that no row states otherwise; fields of `CacheRules`.
        schemas: What its endpoints take of a tool's definition, where no row states otherwise.
        shapes: Which shapes of a history they refuse, where no row states otherwise.
        shaped: Whether histories of this wire can be kept to shapes: elsewhere there is one form.
    """

    changes: Changes
    fields: ChangeFields = ChangeFields()
    cache: dict[str, Any] = {}
    schemas: SchemaRules = SchemaRules()
    shapes: ShapeRules = ShapeRules()
    shaped: bool = False


@cache
def wires() -> Mapping[str, WireData]:
    """Return what is known of the wire APIs, by name."""
    text = resources.files("addendum.routes").joinpath("wires.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, WireData])


def wire_data(name: str) -> WireData:
    """Return what is known of a wire API.

    Raises:
        ConfigurationError: There is none of that name.
    """
    found = wires().get(name)
    if found is None:
        raise ConfigurationError(f"no wire API named {name!r}; there are {', '.join(wires())}")
    return found
