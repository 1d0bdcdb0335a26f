"""Who may append to a session: rules that every store shares.

A lease names a process: its machine, its pid, when it started, and a nonce drawn for this lease
alone. Whether a holder still lives is decided so:

========================================  =====================================================
the holder is                             it lives
========================================  =====================================================
this very process                         while the store object that took the lease is open
a process of this machine                 while it runs, however long it stays silent
one whose state cannot be seen            until the lease expires
on another machine, or from before a boot until the lease expires
========================================  =====================================================

A lease that seems to run far longer than any is given for was taken before the clock was set back;
it counts as expired.

A wrong answer costs a writer its session but never an event: the fencing token refuses whoever
was taken over.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import socket
import sys
import time
import weakref
from pathlib import Path

from msgspec import Struct

from addendum.errors import ConfigurationError, Conflict, SessionBusy, SessionMissing
from addendum.log.store import Lease

LEASE_MS = 60_000
"""Milliseconds after which a silent holder that cannot be watched counts as gone."""

RENEW_AFTER_MS = 20_000
"""How often an open session renews its lease; an append does so only when it is older than that."""

MAX_ID = 200
"""Characters a session id may have."""


class Holder(Struct, frozen=True):
    """A process that may hold leases.

    Attributes:
        host: Name of its host, for people.
        machine: What tells machines apart: boot id and pid namespace, else the host's name.
        pid: Its process id, valid within `machine`.
        started: When it started, in clock ticks since the boot; 0 where that cannot be known.
    """

    host: str
    machine: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


class Claim(Struct, frozen=True, weakref=True):
    """A lease as the store object that took it knows it.

    It dies with that object, so a store that was dropped without being closed holds nothing.

    Attributes:
        holder: This process.
        nonce: Drawn for this lease alone.
    """

    holder: Holder
    nonce: str


class Standing(Struct, frozen=True):
    """A lease as it stands in the store.

    Attributes:
        token: The highest token given out for the session.
        holder: Whom it was given to.
        nonce: The holder's nonce; None once the lease was given back.
        expires: Milliseconds since the epoch.
    """

    token: int
    holder: Holder
    nonce: str | None
    expires: int


_claims: weakref.WeakValueDictionary[str, Claim] = weakref.WeakValueDictionary()


def now() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def check_session(session: str) -> None:
    """Refuse an id that is not 1 to 200 printable characters without `/`.

    Raises:
        ConfigurationError: It is not.
    """
    if not (0 < len(session) <= MAX_ID and session.isprintable() and "/" not in session):
        raise ConfigurationError(
            f"{session[:40]!r} cannot be a session id: "
            f"use 1 to {MAX_ID} printable characters without '/'"
        )


def new_claim() -> Claim:
    """Return a claim of this process; it counts as living as long as it is referenced."""
    claim = Claim(this_process(), secrets.token_hex(8))
    _claims[claim.nonce] = claim
    return claim


def forget(claim: Claim) -> None:
    """Let a claim count as dead from now on, whoever still refers to it."""
    _claims.pop(claim.nonce, None)


def living(standing: Standing, time: int) -> bool:
    """Return whether somebody still holds a lease.

    Args:
        standing: The lease as it stands in the store.
        time: Now, in milliseconds since the epoch.
    """
    if standing.nonce is None:
        return False
    holder, here = standing.holder, this_process()
    if (holder.machine, holder.pid, holder.started) == (here.machine, here.pid, here.started):
        return standing.nonce in _claims
    if holder.machine == here.machine:
        state = running(holder.pid, holder.started)
        if state is not None:
            return state
    return time < standing.expires <= time + 2 * LEASE_MS


def aged(standing: Standing, time: int) -> bool:
    """Return whether a lease is to be prolonged; also when the clock was set back since.

    Args:
        standing: The writer's own lease.
        time: Now, in milliseconds since the epoch.
    """
    return not LEASE_MS - RENEW_AFTER_MS <= standing.expires - time <= LEASE_MS


def this_process() -> Holder:
    """Return this process as a holder."""
    host, machine = _machine()
    pid = os.getpid()
    return Holder(host, machine, pid, _start(pid) or 0)


def running(pid: int, started: int) -> bool | None:
    """Return whether a process of this machine runs; None where that cannot be seen.

    Args:
        pid: Its process id.
        started: When it started, as in `Holder`. Another start is another process.
    """
    start = _start(pid)
    if start is not None:
        return start == started
    if sys.platform == "win32":  # os.kill would end the process there
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return None


def busy(session: str, standing: Standing, time: int) -> SessionBusy:
    """Return the error for a session that somebody living holds."""
    here = this_process()
    if standing.holder == here:
        advice = "it is open in this very process: close it there first"
    elif standing.holder.machine == here.machine:
        advice = "close it there first, or end that process"
    else:
        seconds = max(1, -(-(standing.expires - time) // 1000))
        advice = f"close it there first; if that process is gone, try again in {seconds} s"
    return SessionBusy(
        f"session {session!r} is held by {standing.holder}; {advice}", session=session
    )


def lost(lease: Lease, standing: Standing | None) -> SessionBusy | SessionMissing:
    """Return the error for a lease that is no longer the session's.

    Args:
        lease: The writer's lease.
        standing: The one that stands in the store; None if the session has none.
    """
    if standing is None:
        return missing(lease.session)
    if standing.token == lease.token and standing.nonce is None:
        what = "is no longer held: its lease was given back"
    else:
        what = f"was taken over by {standing.holder}"
    return SessionBusy(
        f"session {lease.session!r} {what}; open the session again to go on",
        session=lease.session,
    )


def missing(session: str) -> SessionMissing:
    """Return the error for a session that does not exist."""
    return SessionMissing(
        f"there is no session {session!r} in this store; check the id and the store's address",
        session=session,
    )


def conflict(session: str, expected: int, actual: int) -> Conflict:
    """Return the error for an append to a log of another length."""
    return Conflict(
        f"session {session!r} has {actual} events where {expected} were expected; "
        "nothing was written: read it again before appending",
        session=session,
        seq=expected,
    )


@functools.cache
def _machine() -> tuple[str, str]:
    """Return the host's name, and what tells this machine from others.

    The boot id tells hosts of one name apart, the pid namespace containers of one kernel (their
    pids mean different processes).
    """
    host = re.sub(r"[^\x21-\x7e]", "_", socket.gethostname()) or "unknown"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().decode().strip()
        return host, f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return host, host


def _start(pid: int) -> int | None:
    """Return when a process started, 0 for one that has ended, None where that is not shown.

    Field 22 of /proc/PID/stat, in clock ticks since the boot (proc(5)); field 2 may hold spaces
    and brackets. An ended process stays listed until its parent asks for its status.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
