"""A program that starts one MCP server and sees to it that nothing of it stays behind.

    python -I -S keeper.py CHANNEL HOST

It is a process of its own, between the host and the server, since nobody else is there to clean up
when the host is killed. It starts the server as the leader of a session and process group, lets it
have stdin, stdout and stderr, and ends the whole group as soon as one of these is over:

- the server itself, however it ended;
- the host: CHANNEL, one end of a pair of sockets, closes with it. Processes that the host forked
  may hold the other end open, so the parent's id is looked at, too;
- this program: the kernel kills the server with it (Linux), and the host ends the group.

The group is asked (SIGTERM) and then killed, `GRACE` seconds each. What left the group by `setsid`
is let go. On Linux it takes in the group's orphans, so that they leave no zombies where process 1
does not wait for any.

Only the standard library's small modules: it starts in about 20 ms and is run without the package.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time

GRACE = 0.7
"""Seconds that the group has to end by itself, and again after a SIGTERM."""

_HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK = 0.5
_STEP = 0.02
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Start the server that CHANNEL names, stay until it is over, and end what it started."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    host = int(sys.argv[2])
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in _HEARD:
        signal.signal(number, _heard)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    order = _read_order(channel)
    if order is None:
        return 0
    server, failed = _start(*order)
    with contextlib.suppress(OSError):
        channel.sendall(failed or b"started %d" % server)
    if failed:
        return 127
    # Whoever reads the server must see the end of it and not wait for this program's.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    ended: set[int] = set()
    while server not in ended:
        ready, _, _ = select.select([channel, wakes], [], [], _LOOK)
        signals = os.read(wakes, 4096) if wakes in ready else b""
        _reap(ended)
        asked = any(number != signal.SIGCHLD for number in signals)
        if channel in ready or asked or os.getppid() != host:
            break
    _end(server, ended)
    return 0


def _heard(number: int, frame: object) -> None:
    """Do nothing: the byte in the wakeup pipe is what counts."""


def _read_order(channel: socket.socket) -> tuple[str, list[str], dict[str, str]] | None:
    """Return folder, command and environment of the server; None if the host has gone.

    On the channel: a length in ten digits, then that many bytes: the folder, the number of words
    of the command, these words, and NAME=VALUE of each variable, with NUL between.
    """
    text = b""
    wanted = 10
    while len(text) < wanted:
        piece = channel.recv(wanted - len(text))
        if not piece:
            return None
        text += piece
        if len(text) == wanted == 10:
            text, wanted = b"", int(text)
    folder, count, *rest = os.fsdecode(text).split("\0")
    words = int(count)
    pairs = (variable.partition("=") for variable in rest[words:])
    return folder, rest[:words], {name: value for name, _, value in pairs}


def _start(folder: str, command: list[str], environ: dict[str, str]) -> tuple[int, bytes]:
    """Start the server.

    Returns:
        Its process id, which is its group's, too; and what failed with which number of the
        operating system (`folder 2`, `command 13`), empty if nothing did.
    """
    keeper = os.getpid()
    failures, failure = os.pipe()
    server = os.fork()
    if server == 0:
        step = "command"
        code = errno.EIO
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (*_HEARD, signal.SIGPIPE, signal.SIGXFSZ):
                # Python ignores the last two, and a program would inherit that.
                signal.signal(number, signal.SIG_DFL)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == keeper:
                if folder:
                    step = "folder"
                    os.chdir(folder)
                    step = "command"
                os.execvpe(command[0], command, environ)
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os.write(failure, b"%s %d" % (step.encode(), code))
            os._exit(127)
    os.close(failure)
    failed = os.read(failures, 40)
    os.close(failures)
    if failed:
        os.waitpid(server, 0)
    return server, failed


def _reap(ended: set[int]) -> None:
    """Take in every child that has ended: the server, and orphans of its group."""
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.add(pid)


def _end(server: int, ended: set[int]) -> None:
    """End the server's group. A leader that still runs may first end by itself."""
    if server not in ended:
        _over(server, ended, leader=True)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(server, number)
        if _over(server, ended, leader=False):
            return


def _over(server: int, ended: set[int], *, leader: bool) -> bool:
    """Wait at most `GRACE` seconds until the leader, or all of its group, has ended."""
    until = time.monotonic() + GRACE
    while True:
        _reap(ended)
        if leader and server in ended:
            return True
        try:
            os.killpg(server, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        if time.monotonic() >= until:
            return False
        time.sleep(_STEP)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        # Without it the host still ends the group, and only orphans' zombies may stay.
        pass


if __name__ == "__main__":
    sys.exit(main())
