"""An MCP server as a child process: its streams, the end of its stderr, its certain end.

Not the SDK's own stdio client, which has no bound on a line, cannot read a line with a lone
surrogate (a server in JavaScript that cuts text in the middle of an emoji sends one), sends the
child's stderr to a file, and cannot be told that a child hangs and is to be killed at once.
Imports the MCP SDK: import it only behind `mcp_link`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from addendum.encoding import MAX_TEXT, mend_surrogates
from addendum.errors import ContentError
from addendum.tools.mcp import ServerSpec, one_line

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
"""What the SDK reads from and writes to."""

TAIL_BYTES = 4096
"""Bytes of a child's stderr that are kept for error messages."""

_POLL = 0.01
_REAP = 2.0
_LAST_WORDS = 0.2


class Child:
    """What the owner of a child process knows of it and can ask of it.

    Attributes:
        tail: The end of its stderr, and of what it wrote to stdout that is no JSON.
        pid: Its process id once it runs.
        exit_code: Set when it has ended.
        process: The process itself while it may run.
    """

    def __init__(self) -> None:
        self.tail = b""
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.process: Process | None = None

    def note(self, data: bytes) -> None:
        """Keep the end of `data` for error messages."""
        self.tail = (self.tail + data)[-TAIL_BYTES:]

    def kill(self) -> None:
        """Kill it without asking, for one that hangs; its streams end, and so the connection."""
        if self.process is not None:
            _signal(self.process, kill=True)


@asynccontextmanager
async def run_child(spec: ServerSpec, child: Child, grace: float) -> AsyncGenerator[Streams]:
    """Start the server's process and yield its message streams; end it on the way out.

    The child leads a process group of its own, so that its children end with it and an interrupt
    at our terminal does not reach it. It gets the SDK's minimal environment and `spec.env`.

    Args:
        spec: A server with a `command`.
        child: Filled with what is known of the process.
        grace: Seconds it has to end after its stdin closed, and again after a SIGTERM.

    Raises:
        OSError: The program cannot be started.
    """
    # A start that is cancelled midway leaves a process that nobody waits for.
    with anyio.CancelScope(shield=True):
        child.process = await anyio.open_process(
            list(spec.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=get_default_environment() | dict(spec.env),
            cwd=spec.cwd,
            start_new_session=True,
        )
    process = child.process
    assert process is not None
    child.pid = process.pid
    incoming_in, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outgoing_out = anyio.create_memory_object_stream[SessionMessage](0)
    silent = anyio.Event()
    async with anyio.create_task_group() as tasks:
        try:
            # From here to the `yield` nothing waits, so no cancellation can lose the process.
            tasks.start_soon(_read, process, incoming_in, child)
            tasks.start_soon(_write, process, outgoing_out, incoming_in)
            tasks.start_soon(_read_errors, process, child, silent)
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, child, grace)
                with anyio.move_on_after(_LAST_WORDS):
                    await silent.wait()
                _close_pipes(process)
            tasks.cancel_scope.cancel()
            for stream in (incoming_in, incoming, outgoing, outgoing_out):
                stream.close()


async def _read(
    process: Process, into: MemoryObjectSendStream[SessionMessage | Exception], child: Child
) -> None:
    with into, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        assert process.stdout is not None
        async for line in _lines(process.stdout):
            message = _message(line)
            if message is None:
                child.note(line + b"\n")
            else:
                await into.send(message)


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[bytes]:
    pending = bytearray()
    async for chunk in stream:
        start = len(pending)
        pending += chunk
        if b"\n" in chunk:
            end = pending.rfind(b"\n", start)
            for line in bytes(pending[:end]).split(b"\n"):
                yield line
            del pending[: end + 1]
        if len(pending) > MAX_TEXT:
            # Where the next message begins can no longer be known: the connection is over.
            raise ContentError(f"the server sent a message of more than {MAX_TEXT:,} bytes")


def _message(line: bytes) -> SessionMessage | None:
    mended = mend_surrogates(line)
    try:
        try:
            decoded = msgspec.json.decode(mended)
        except msgspec.DecodeError:
            # Python's own reader takes NaN and Infinity, which many servers write: what holds one
            # is dropped later, and not all that came with it.
            decoded = json.loads(mended)
        return SessionMessage(jsonrpc_message_adapter.validate_python(decoded, by_name=False))
    except (ValueError, RecursionError) as error:
        return _unreadable(line, error)


# Where an envelope has its id: in front of what it holds or behind it, never inside.
_ID_AT_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_ID_AT_END = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


def _unreadable(line: bytes, error: Exception) -> SessionMessage | None:
    """Return an error in place of an answer that cannot be read (nested without end, cut).

    Whoever asked would otherwise wait until the time is up. None if it is no answer at all.
    """
    found = _ID_AT_START.match(line) or _ID_AT_END.search(line, max(0, len(line) - 100))
    if found is None or b'"method"' in line[:100]:
        return None
    said = "no message of the protocol" if isinstance(error, ValidationError) else str(error)
    reason = one_line(f"the server's answer cannot be read: {said}")
    return SessionMessage(
        JSONRPCError(
            jsonrpc="2.0",
            id=int(found[1]),
            error=ErrorData(code=PARSE_ERROR, message=reason),
        )
    )


async def _write(
    process: Process,
    out: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin is not None
    with out:
        try:
            async for message in out:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            # It cannot be told anything any more: end the connection, whatever its stdout does.
            incoming.close()


async def _read_errors(process: Process, child: Child, silent: anyio.Event) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        assert process.stderr is not None
        async for chunk in process.stderr:
            child.note(chunk)
    silent.set()


async def _end(process: Process, child: Child, grace: float) -> None:
    """End the process: close its stdin, then SIGTERM, then SIGKILL, each after the grace period."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        if process.stdin is not None:
            await process.stdin.aclose()
    if not await _ended(process, grace):
        _signal(process, kill=False)
        if not await _ended(process, grace):
            _signal(process, kill=True)
            await _ended(process, _REAP)
    child.process, child.exit_code = None, process.returncode


def _close_pipes(process: Process) -> None:
    # A grandchild outside the group may hold the pipes open; asyncio's transport would then stay
    # open and warn when it is collected. Nothing public leads to it.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _ended(process: Process, seconds: float) -> bool:
    # Not `process.wait()`: asyncio's also waits for the pipes, which a grandchild may hold open.
    deadline = anyio.current_time() + seconds
    while process.returncode is None:
        if anyio.current_time() >= deadline:
            return False
        await anyio.sleep(_POLL)
    return True


def _signal(process: Process, *, kill: bool) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            # The child leads its group, so its pid is the group's id.
            os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
