"""Real MCP servers for tests and scenarios, made of canned tools.

`in_process` gives one for `ServerSpec.server`: real protocol over an in-memory transport, with a
connection that can be dropped and come back, and a list that can change. As a program
(`python -m addendum.lab.mcp_servers --changing`) it is a server on stdio whose list its own tools
change: `grow` adds a tool, `shrink` removes the last one.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams


class CannedTool(msgspec.Struct, frozen=True):
    """A tool that always answers the same.

    Attributes:
        name: Its name on the server.
        description: What the model reads of it.
        parameters: Its JSON schema, an object.
        result_text: The answer to every call.
        is_error: Whether that answer is an error.
        content: Blocks of the answer in the protocol's form, in place of the text.
        annotations: What the server says of it (`readOnlyHint` ...); nothing if None.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    result_text: str
    is_error: bool = False
    content: tuple[types.ContentBlock, ...] = ()
    annotations: dict[str, Any] | None = None


class CannedServer:
    """An MCP server of canned tools, in this process.

    Attributes:
        name: Its name.
        tools: What it lists now, in the order it lists them.
        calls: The calls it got: name and arguments.
        mcp: The SDK's server, for other transports (`mcp.streamable_http_app()`).
    """

    def __init__(
        self, name: str, tools: Sequence[CannedTool], instructions: str | None = None
    ) -> None:
        self.name = name
        self.tools = list(tools)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._bus = InMemorySubscriptionBus()
        self._down = False
        self._open: set[anyio.Event] = set()
        self._left = anyio.Event()
        self.mcp: Server[Any] = Server(
            name,
            instructions=instructions,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    async def add(self, tool: CannedTool) -> None:
        """List one more tool, or another definition of a listed one, and tell the clients."""
        names = [known.name for known in self.tools]
        if tool.name in names:
            self.tools[names.index(tool.name)] = tool
        else:
            self.tools.append(tool)
        await self.announce()

    async def remove(self, name: str) -> None:
        """No longer list a tool, and tell the clients."""
        self.tools = [tool for tool in self.tools if tool.name != name]
        await self.announce()

    async def announce(self) -> None:
        """Tell the clients that the list changed."""
        await self._bus.publish(ToolsListChanged())

    async def drop(self) -> None:
        """Break all connections, refuse new ones, and wait until the clients have noticed."""
        self._down = True
        for ended in self._open:
            ended.set()
        while self._open:
            await self._left.wait()

    async def back(self) -> None:
        """Take connections again."""
        self._down = False

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        """Serve one connection and yield the client's streams.

        Raises:
            ConnectionError: The server was dropped and is not back.
        """
        if self._down:
            raise ConnectionError(f"{self.name} is down")
        ended = anyio.Event()
        self._open.add(ended)
        try:
            async with (
                create_client_server_memory_streams() as (client, served),
                anyio.create_task_group() as tasks,
            ):

                async def serve() -> None:
                    await self.mcp.run(*served, self.mcp.create_initialization_options())

                async def break_off() -> None:
                    await ended.wait()
                    for stream in (*served, *client):
                        await stream.aclose()

                tasks.start_soon(serve)
                tasks.start_soon(break_off)
                yield client
                tasks.cancel_scope.cancel()
        finally:
            self._open.discard(ended)
            left, self._left = self._left, anyio.Event()
            left.set()

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.parameters,
                    annotations=None
                    if tool.annotations is None
                    else types.ToolAnnotations.model_validate(tool.annotations),
                )
                for tool in self.tools
            ]
        )

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        self.calls.append((params.name, params.arguments or {}))
        for tool in self.tools:
            if tool.name == params.name:
                blocks = tool.content or (types.TextContent(text=tool.result_text),)
                return types.CallToolResult(content=[*blocks], is_error=tool.is_error)
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name}")


def in_process(
    name: str, tools: Sequence[CannedTool], instructions: str | None = None
) -> CannedServer:
    """Return a server of these tools; give it to `ServerSpec(server=...)`."""
    return CannedServer(name, tools, instructions)


class _Changing(CannedServer):
    """Its own tools change its list."""

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        extra = [tool for tool in self.tools if tool.name.startswith("extra_")]
        if params.name == "grow":
            name = f"extra_{len(extra) + 1}"
            self.tools.append(_canned(name, f"Extra tool number {len(extra) + 1}."))
        elif params.name == "shrink" and extra:
            self.tools.remove(extra[-1])
        else:
            return await super()._call(context, params)
        await self.announce()
        # A classic client hears of it by this; a 2026 one gets its subscription's event.
        await context.session.send_tool_list_changed()
        return types.CallToolResult(content=[types.TextContent(text=f"{len(self.tools)} tools")])


def _canned(name: str, description: str) -> CannedTool:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    return CannedTool(name, description, schema, f"{name} was called")


async def _serve_changing() -> None:
    server = _Changing(
        "changing",
        [
            _canned("grow", "Add one tool to this server."),
            _canned("shrink", "Remove the tool that was added last."),
        ],
    )
    async with stdio_server() as (reads, writes):
        await server.mcp.run(reads, writes, server.mcp.create_initialization_options())


def main(arguments: Sequence[str]) -> int:
    """Serve on stdio. `--changing` is the one thing it can be asked for."""
    if list(arguments) != ["--changing"]:
        print("usage: python -m addendum.lab.mcp_servers --changing", file=sys.stderr)
        return 2
    anyio.run(_serve_changing)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
