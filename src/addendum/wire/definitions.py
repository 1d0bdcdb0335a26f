"""Tools' definitions as one route's requests hold them, encoded once in a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import msgspec

from addendum.log.values import ToolSchema
from addendum.prompt.wire_facts import SCREENED
from addendum.routes.schemas import SchemaRules
from addendum.wire.pieces import Declarations
from addendum.wire.schemas import relieved, screened

NO_RULES = SchemaRules()
"""What an endpoint takes that takes everything."""

Encode: TypeAlias = Callable[[ToolSchema], bytes]


@lru_cache(maxsize=64)
def declarations(
    encode: Encode, rules: SchemaRules, rendering: int, refused: tuple[str, ...] | None
) -> Declarations:
    """Return what encodes definitions on a route.

    Args:
        encode: Encodes one on the wire.
        rules: What the endpoint takes.
        rendering: Number of the rendering.
        refused: What the wire left out at the top of a schema before definitions were screened;
            None where it changed none.
    """

    def sent(tool: ToolSchema) -> bytes:
        if rendering >= SCREENED:
            return encode(screened(tool, rules).tool)
        if refused is None:
            return encode(tool)
        parameters = relieved(tool.parameters, refused)
        return encode(msgspec.structs.replace(tool, parameters=parameters))

    return Declarations(sent)
