"""What a session's registry makes of a log: which server a tool belongs to."""

from __future__ import annotations

import pytest
from msgspec import Raw

from addendum.log.values import ToolSchema
from addendum.stores import MemoryStore
from addendum.tools.mcp.pool import ServerPool
from addendum.tools.mcp.values import ServerSpec
from addendum.tools.names import model_name
from addendum.tools.registry import Registry

pytestmark = pytest.mark.anyio

ALIKE = ("a_b", "a b", "a.b", "a__b", "1", "_1", "_")


@pytest.mark.parametrize("first", ALIKE)
async def test_tools_of_servers_with_names_alike_stay_apart_over_a_restart(first: str) -> None:
    order = [first, *(name for name in ALIKE if name != first)]
    tools = {
        model_name(server, tool, ()): server for server in ALIKE for tool in ("t", "read_file", "_")
    }
    assert len(tools) == 3 * len(ALIKE)
    pool = ServerPool(idle_seconds=0.05)
    specs = [ServerSpec(name=name, command=("/no/such/program",)) for name in order]
    registry = Registry((), specs, pool=pool, store=MemoryStore())
    schemas = [ToolSchema(name, "", Raw(b'{"type":"object"}')) for name in tools]
    registry.restore(schemas, order, {}, ())
    found = {name: entry.server for name, entry in registry.snapshot().entries.items()}
    assert found == tools
    await pool.aclose()
