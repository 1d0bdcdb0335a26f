"""A program in a real terminal of its own: a pseudo-terminal that it controls."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pexpect import EOF
from pexpect.fdpexpect import fdspawn

TIMEOUT = 30.0
"""Seconds that something on the screen may take."""

# What makes a terminal ours is done in the new process before the program takes its place: forking
# by hand is not safe in a process that has threads, as a test with a lab has.
_START = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, '-m', 'addendum.app.main', *sys.argv[1:]])"
)
_PASTE = re.compile(r"\x1b\[\?2004[hl]\r?")


class Terminal:
    """One run of `addendum` in a terminal.

    Attributes:
        process: The process.
    """

    def __init__(self, process: subprocess.Popen[bytes], screen: fdspawn) -> None:
        self.process = process
        self._screen = screen
        self._seen = ""

    @property
    def seen(self) -> str:
        """All that came so far, without the codes of line editing."""
        return _PASTE.sub("", self._seen)

    def expect(self, pattern: str) -> str:
        """Wait until a pattern comes; return what came up to its end."""
        self._screen.expect(pattern, timeout=TIMEOUT)
        came = self._screen.before + self._screen.after
        self._seen += came
        return _PASTE.sub("", came)

    def prompt(self) -> str:
        """Wait for the prompt; return what came in front of it."""
        return self.expect(r"(?:\n|\x1b\[\?2004h)> ")

    def type(self, text: str) -> None:
        """Type a line."""
        self._screen.send(f"{text}\r")

    def press(self, key: str) -> None:
        """Press a key together with Ctrl."""
        self._screen.send(chr(ord(key.upper()) - 64))

    def say(self, text: str) -> str:
        """Type a line and wait for the next prompt; return what came between."""
        self.type(text)
        self._screen.expect(re.escape(text[-10:]), timeout=TIMEOUT)
        self._seen += self._screen.before + self._screen.after
        return self.prompt()

    def hang_up(self) -> None:
        """Close the terminal under the program."""
        self._screen.close()

    def end(self) -> int:
        """Wait until the program has ended; return its exit code."""
        self._screen.expect(EOF, timeout=TIMEOUT)
        self._seen += self._screen.before
        return self.process.wait(TIMEOUT)


@contextmanager
def in_terminal(
    arguments: Sequence[str], *, home: Path, columns: int = 80, term: str = "xterm", **env: str
) -> Generator[Terminal]:
    """Run `addendum` with arguments in a terminal; it is killed if it outlives the context.

    Args:
        arguments: The arguments.
        home: Where it finds its user's files.
        columns: How wide the terminal is.
        term: What it is.
        env: Further variables.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC", "ADDENDUM"))}
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**clean, "HOME": str(home), "TERM": term, "INPUTRC": os.devnull, **env},
    )
    os.close(theirs)
    screen = fdspawn(ours, encoding="utf-8", timeout=TIMEOUT)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if not screen.closed:
            screen.close()
