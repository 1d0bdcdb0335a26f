"""Two fixed tools through which a model lists and reads the resources of MCP servers.

They are offered to who asks for them, `Agent(tools=[..., *RESOURCE_TOOLS])`, and so stand in the
head like any function tool: the same bytes whatever the servers offer, and whichever are on. Only
servers that are switched on can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import anyio
from msgspec import Raw

from addendum.encoding import decode, encode
from addendum.errors import ConfigurationError
from addendum.log.values import ToolSchema
from addendum.tools.functions import FunctionTool, ToolContext
from addendum.tools.mcp.offers import MAX_URI, RemoteResource
from addendum.tools.mcp.values import CallOutcome
from addendum.tools.servers import Connect, Outcome, Run, Server

BUDGET = 32_000
"""Bytes of one list; what is beyond it is counted."""


def _outside(arguments: dict[str, Any]) -> str:
    raise ConfigurationError(
        "this tool reads MCP servers of a session; give it to an Agent as one of its tools"
    )


def _tool(name: str, description: str, parameters: dict[str, Any]) -> FunctionTool[..., Any]:
    schema = {"type": "object", "additionalProperties": False, **parameters}
    declared = ToolSchema(name, description, Raw(encode(schema)))
    return FunctionTool.from_schema(declared, _outside, read_only=True)


_SERVER = {"type": "string", "description": "Name of the MCP server."}

LIST_RESOURCES = _tool(
    "list_resources",
    "List the resources (files, records, pages) that MCP servers offer for reading. Where an "
    "entry is a template, fill in the places in braces before you read it.",
    {
        "properties": {
            "server": {**_SERVER, "description": "Name of the MCP server; all if absent."}
        }
    },
)
READ_RESOURCE = _tool(
    "read_resource",
    "Read one resource of an MCP server by its address.",
    {
        "properties": {
            "server": _SERVER,
            "uri": {
                "type": "string",
                "description": "Address as list_resources or a result has it.",
            },
        },
        "required": ["server", "uri"],
    },
)
RESOURCE_TOOLS = (LIST_RESOURCES, READ_RESOURCE)
"""`list_resources` and `read_resource`, for `Agent(tools=...)`."""


def reached(
    servers: Callable[[], Sequence[Server]], arguments: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the names of the servers that a call of one of the two tools reads.

    Args:
        servers: Gives the servers that are on.
        arguments: The call's.
    """
    name = arguments.get("server")
    return tuple(each.spec.name for each in servers()) if name is None else (str(name),)


def resource_run(
    tool: FunctionTool[..., Any], servers: Callable[[], Sequence[Server]], connect: Connect
) -> Run | None:
    """Return what runs one of the two tools in a session; None for any other tool.

    Args:
        tool: The tool.
        servers: Gives the servers that are on.
        connect: Gives a server's connection.
    """

    async def run(arguments: bytes, context: ToolContext, seconds: float) -> Outcome:
        given = cast("dict[str, str]", decode(arguments or b"{}"))
        on = {server.spec.name: server for server in servers()}
        name = given.get("server")
        if name is not None and name not in on:
            there = ", ".join(on) or "none"
            return Outcome(f"no server {name!r} is switched on; there are: {there}", True, "off")
        if tool is LIST_RESOURCES:
            chosen = list(on.values()) if name is None else [on[name]]
            return await _listed(chosen, connect, seconds)
        uri = given.get("uri", "")
        if not 0 < len(uri) <= MAX_URI:
            return Outcome(f"uri must have 1 to {MAX_URI:,} characters", True, "invalid_arguments")
        server = on[str(name)]
        connection = await connect(server)
        limit = server.spec.timeout or seconds
        found = await connection.ask(lambda link: link.resource(uri), limit)
        return Outcome(found.text, found.is_error, found.code, found.media)

    return run if tool in RESOURCE_TOOLS else None


async def _listed(servers: Sequence[Server], connect: Connect, seconds: float) -> Outcome:
    found: dict[str, tuple[RemoteResource, ...] | CallOutcome] = {}

    async def one(server: Server) -> None:
        connection = await connect(server)
        limit = server.spec.timeout or seconds
        found[server.spec.name] = await connection.ask(lambda link: link.resources(), limit)

    async with anyio.create_task_group() as tasks:
        for server in servers:
            tasks.start_soon(one, server)
    lines: list[str] = []
    size = left = 0
    failed = 0
    for server in servers:
        name = server.spec.name
        answer = found[name]
        if isinstance(answer, CallOutcome):
            failed += 1
            lines.append(answer.text)
            continue
        for resource in answer:
            line = _line(name, resource)
            size += len(line.encode())
            if size > BUDGET:
                left += 1
            else:
                lines.append(line)
    if left:
        lines.append(f"and {left:,} more; name one server to see fewer")
    return Outcome("\n".join(lines) or "no resources", failed == len(servers) > 0)


def _line(server: str, resource: RemoteResource) -> str:
    shown: dict[str, Any] = {
        "server": server,
        "template" if resource.template else "uri": resource.uri,
        "name": resource.name,
        "description": resource.description,
        "type": resource.type,
        "size": resource.size,
    }
    return encode({key: value for key, value in shown.items() if value not in ("", None)}).decode()
