"""Prompts made by hand, for the builders of wire modules."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from addendum import encoding
from addendum.log.events import RequestContext
from addendum.log.values import Config, ToolSchema
from addendum.prompt.blocks import Block, Marks, Prompt, Text

CONFIG = Config("x", "model-1")


def context(wire: str, **more: Any) -> RequestContext:
    return RequestContext(
        route="x:model-1", wire=wire, projection="dispatch", definitions="by-value", **more
    )


def tool(name: str, schema: dict[str, Any] | None = None, description: str = "D.") -> ToolSchema:
    parameters = schema or {"type": "object", "properties": {"q": {"type": "string"}}}
    return ToolSchema(name, description, Raw(encoding.encode(parameters)))


def human(seq: int, text: str) -> Text:
    return Text(seq, 0, "user", text, "human")


def prompt(
    wire: str,
    *blocks: Block,
    settled: int = 0,
    tools: tuple[ToolSchema, ...] = (),
    system: tuple[str, ...] = (),
    tail: str | None = None,
    tail_at: int = 0,
    marks: Marks | None = None,
    chain: int = 1,
    **more: Any,
) -> Prompt:
    return Prompt(
        context(wire, **more),
        tools,
        tuple(Text(-1, at, "system", text, "prompt") for at, text in enumerate(system)),
        list(blocks[:settled]),
        settled,
        blocks[settled:],
        None if tail is None else Text(99, 1, "user", tail, "tail"),
        tail_at,
        marks or Marks(),
        chain,
        "key",
    )
