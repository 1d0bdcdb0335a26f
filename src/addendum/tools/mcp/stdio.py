"""An MCP server as a child process: its streams, the end of its stderr, its certain end.

Not the SDK's own stdio client, which has no bound on a line, cannot read a line with a lone
surrogate (a server in JavaScript that cuts text in the middle of an emoji sends one), sends the
child's stderr to a file, and cannot be told that a child hangs and is to be killed at once.

Between us and the server stands `keeper`, which ends its whole process group however the two
end. Imports the MCP SDK: import it only behind `link`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest

from addendum.errors import ConfigurationError, ContentError
from addendum.tools.mcp.framing import Lines
from addendum.tools.mcp.messages import (
    LINE,
    Allowance,
    Refused,
    noise,
    read_messages,
    unreadable,
)
from addendum.tools.mcp.peer import TAIL_BYTES, Peer, signal_group
from addendum.tools.mcp.start import start_error
from addendum.tools.mcp.values import ServerSpec

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
"""What the SDK reads from and writes to."""

_POLL = 0.01
_REAP = 3.0
_LAST_WORDS = 0.2
_KEEPER = Path(__file__).with_name("keeper.py")


@asynccontextmanager
async def run_child(spec: ServerSpec, peer: Peer, grace: float) -> AsyncGenerator[Streams]:
    """Start the server's process and yield its message streams; end it on the way out.

    The child leads a session and process group of its own, so that its children end with it and
    an interrupt at our terminal does not reach it. It gets the SDK's minimal environment and
    `spec.env`.

    Args:
        spec: A server with a `command`.
        peer: Filled with what is known of the process.
        grace: Seconds it has to end after its stdin closed, and again after a SIGTERM.

    Raises:
        ConfigurationError: The program cannot be started.
    """
    ours, theirs = socket.socketpair()
    with closing(ours):
        keeper = _keeper_command(theirs.fileno())
        with closing(theirs):
            await _open(spec, peer, keeper, theirs.fileno())
        process = peer.process
        assert process is not None
        incoming_in, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, outgoing_out = anyio.create_memory_object_stream[SessionMessage](0)
        silent = anyio.Event()
        async with anyio.create_task_group() as tasks:
            try:
                # From here to the `try` nothing waits, so no cancellation can lose the process.
                tasks.start_soon(_read, process, incoming_in, peer)
                tasks.start_soon(_write, process, outgoing_out, incoming_in)
                tasks.start_soon(_read_errors, process, peer, silent)
                if keeper:
                    peer.pid = await _begin(ours, spec)
                    tasks.start_soon(_watch, ours, incoming_in)
                else:
                    peer.pid = process.pid
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process, peer, grace, ours, kept=bool(keeper))
                    with anyio.move_on_after(_LAST_WORDS):
                        await silent.wait()
                    _close_pipes(process)
                tasks.cancel_scope.cancel()
                for stream in (incoming_in, incoming, outgoing, outgoing_out):
                    stream.close()


async def _open(spec: ServerSpec, peer: Peer, keeper: list[str] | None, channel: int) -> None:
    # A start that is cancelled midway leaves a process that nobody waits for.
    with anyio.CancelScope(shield=True):
        try:
            peer.process = await anyio.open_process(
                keeper or list(spec.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if keeper else _environment(spec),
                cwd=None if keeper else spec.cwd,
                start_new_session=True,
                pass_fds=(channel,) if keeper else (),
            )
        except OSError as error:
            if keeper or error.errno is None:
                raise
            raise start_error(spec, error.errno) from error


def _environment(spec: ServerSpec) -> dict[str, str]:
    return get_default_environment() | dict(spec.env)


def _keeper_command(channel: int) -> list[str] | None:
    """Return the command of a keeper; None where there is no interpreter to run it.

    A program that was frozen or embeds Python is none, and Windows has no process groups.
    """
    interpreter = sys.executable or ""
    if (
        sys.platform == "win32"
        or getattr(sys, "frozen", False)
        or not re.match("python|pypy", Path(interpreter).name)
        or not _KEEPER.is_file()
    ):
        return None
    return [interpreter, "-I", "-S", str(_KEEPER), str(channel), str(os.getpid())]


async def _begin(channel: socket.socket, spec: ServerSpec) -> int:
    """Have the keeper start the server; return the server's process id.

    Raises:
        ConfigurationError: It cannot be started, or a word of it has a NUL in it.
        ConnectionError: The keeper could not.
    """
    pairs = [f"{name}={value}" for name, value in _environment(spec).items()]
    words = [spec.cwd or "", str(len(spec.command)), *spec.command, *pairs]
    if any("\0" in word for word in words):
        raise ConfigurationError(
            f"server {spec.name}: its command, cwd or env holds a NUL character; remove it"
        )
    text = os.fsencode("\0".join(words))
    channel.setblocking(False)
    rest = b"%010d" % len(text) + text
    answer = b""
    # A keeper that ends before it answers has said why on stderr.
    with suppress(ConnectionError):
        while rest:
            await anyio.wait_writable(channel)
            rest = rest[channel.send(rest) :]
        await anyio.wait_readable(channel)
        answer = channel.recv(100)
    what, _, number = answer.decode().partition(" ")
    if not number:
        raise ConnectionError("the process that was to start the server ended")
    if what == "started":
        return int(number)
    raise start_error(spec, int(number), what)


async def _watch(
    channel: socket.socket, incoming: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    """End the connection with the keeper: what outlives it may hold the server's stdout open."""
    await anyio.wait_readable(channel)
    incoming.close()


async def _read(
    process: Process,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    peer: Peer,
) -> None:
    lines = Lines(noise())
    with into, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        assert process.stdout is not None
        try:
            async for chunk in process.stdout:
                for line in lines.feed(chunk):
                    messages = _messages(line, peer, lines.noise)
                    # An answer may be large: nothing here holds it while we wait.
                    del line
                    while messages:
                        await into.send(SessionMessage(messages.pop(0)))
        except ContentError as error:
            # Where the next message begins can no longer be known: the connection is over.
            peer.broke(error)


def _messages(
    line: bytearray | JSONRPCError, peer: Peer, allowed: Allowance
) -> list[JSONRPCMessage]:
    """Return the messages of a line; what is none of them goes to the child's last words.

    Raises:
        ContentError: There is too much that is no message.
    """
    if isinstance(line, JSONRPCError):
        return [line]
    try:
        return read_messages(line)
    except ContentError as error:
        answer = unreadable(line, line, str(error))
        if answer is not None:
            return [answer]
        peer.note(bytes(line[-TAIL_BYTES:]) + b"\n")
        allowed.take(LINE + len(line))
        return []


async def _write(
    process: Process,
    out: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin is not None
    with out:
        async for item in out:
            message = item.message
            text = message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await process.stdin.send(text.encode() + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                # Nobody reads there, and the line has not gone as a whole: it did not run. What
                # the server still has to say does not matter, whatever its stdout does.
                if isinstance(message, JSONRPCRequest):
                    why = ErrorData(
                        code=CONNECTION_CLOSED, message=str(error), data=Refused(None, sent=False)
                    )
                    failed = JSONRPCError(jsonrpc="2.0", id=message.id, error=why)
                    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                        await incoming.send(SessionMessage(failed))
                incoming.close()
                return


async def _read_errors(process: Process, peer: Peer, silent: anyio.Event) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        assert process.stderr is not None
        async for chunk in process.stderr:
            peer.note(chunk)
    silent.set()


async def _end(
    process: Process, peer: Peer, grace: float, channel: socket.socket, *, kept: bool
) -> None:
    """End the process: close its stdin, then SIGTERM, then SIGKILL, each after the grace period."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        if process.stdin is not None:
            await process.stdin.aclose()
    if peer.pid is None:
        # It was not started yet, or we do not know: the keeper is told that nobody waits.
        channel.close()
    if not await _ended(process, grace):
        peer.signal(kill=False)
        if not await _ended(process, grace):
            peer.signal(kill=True)
            channel.close()
            if not await _ended(process, _REAP):
                process.kill()
    if (process.returncode or not kept) and peer.pid is not None and sys.platform != "win32":
        # Without a keeper, or where it was killed, the server's group is left to us.
        signal_group(peer.pid, signal.SIGKILL)
    peer.process = None


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
