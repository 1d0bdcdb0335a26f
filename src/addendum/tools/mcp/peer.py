"""What is known of the other side of a connection, and can be asked of it without its consent."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from anyio.abc import Process

TAIL_BYTES = 4096
"""Bytes of a child's stderr that are kept for error messages."""


class Peer:
    """The other side: a process, or an endpoint over HTTP.

    Attributes:
        tail: The end of a process's stderr, and of what it wrote to stdout that is no message.
        pid: A server's process id once it runs; it leads a group of the same number.
        process: What we started, while it may run: the server's keeper, or the server.
        session: Whether an endpoint gave us a session.
        refused: Whether an endpoint could not be reached, or answered with an HTTP error.
        fault: Why the connection ends, where its streams only tell that it does.
    """

    def __init__(self) -> None:
        self.tail = b""
        self.pid: int | None = None
        self.process: Process | None = None
        self.session = False
        self.refused = False
        self.fault: Exception | None = None

    def note(self, data: bytes) -> None:
        """Keep the end of `data` for error messages."""
        self.tail = (self.tail + data)[-TAIL_BYTES:]

    def broke(self, error: Exception) -> None:
        """Keep why the connection ends; the first reason counts."""
        self.fault = self.fault or error

    def kill(self) -> None:
        """Kill it without asking, for one that hangs; its streams end, and so the connection."""
        self.signal(kill=True)

    def signal(self, *, kill: bool) -> None:
        """Tell a server's whole group to end, or kill it, while it may run."""
        # Later the number may be another process's.
        if self.process is None or self.process.returncode is not None or self.pid is None:
            return
        if sys.platform == "win32":
            self.process.kill()
        else:
            signal_group(self.pid, signal.SIGKILL if kill else signal.SIGTERM)


def signal_group(group: int, number: int) -> None:
    """Send a signal to all processes of a group, if there are any."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
