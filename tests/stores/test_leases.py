"""Who counts as living, and what a refused writer is told."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from addendum.log.store import Lease
from addendum.stores import leases
from addendum.stores.leases import Holder, Standing

NOW = 1_000_000
ELSEWHERE = Holder("far", "another boot", 4711, 99)


def stand(holder: Holder, *, nonce: str | None = "n", expires: int = NOW - 1) -> Standing:
    return Standing(3, holder, nonce, expires)


def test_this_process_holds_what_it_still_refers_to() -> None:
    claim = leases.new_claim()
    standing = stand(claim.holder, nonce=claim.nonce)
    assert claim.holder == leases.this_process()
    assert leases.living(standing, NOW)
    assert not leases.living(stand(claim.holder, nonce="of a store dropped", expires=NOW + 9), NOW)
    del claim
    assert not leases.living(standing, NOW)


def test_nonces_differ() -> None:
    assert leases.new_claim().nonce != leases.new_claim().nonce


def test_a_lease_given_back_is_held_by_nobody() -> None:
    assert not leases.living(stand(ELSEWHERE, nonce=None, expires=NOW + 9), NOW)


@pytest.mark.parametrize(
    ("expires", "lives"),
    [
        (NOW + 1, True),
        (NOW, False),
        (NOW - 1, False),
        # Set back by a little, and by a year.
        (NOW + leases.LEASE_MS + 30_000, True),
        (NOW + 365 * 86_400_000, False),
    ],
)
def test_on_another_machine_the_clock_decides(expires: int, lives: bool) -> None:
    assert leases.living(stand(ELSEWHERE, expires=expires), NOW) is lives
    same_name = msgspec.structs.replace(leases.this_process(), machine="another boot")
    assert leases.living(stand(same_name, expires=expires), NOW) is lives


@pytest.mark.parametrize(
    ("later", "prolonged"),
    [(0, False), (19_999, False), (20_001, True), (-1, True), (-(10**9), True)],
)
def test_a_lease_is_prolonged_when_it_is_old_or_the_clock_was_set_back(
    later: int, prolonged: bool
) -> None:
    own = stand(leases.this_process(), expires=NOW + leases.LEASE_MS)
    assert leases.aged(own, NOW + later) is prolonged


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_on_this_machine_a_running_process_lives_whatever_the_clock_says() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = leases._start(child.pid)
        assert started
        holder = msgspec.structs.replace(
            leases.this_process(), pid=child.pid, started=started, host="renamed"
        )
        assert leases.living(stand(holder, expires=0), NOW)
        # A process that got the same number later is another one.
        assert not leases.living(
            stand(msgspec.structs.replace(holder, started=started - 1), expires=NOW + 9), NOW
        )
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not leases.living(stand(holder, expires=NOW + 9), NOW), "ended, not yet waited for"
    assert not leases.living(stand(holder, expires=NOW + 9), NOW)


def test_where_a_start_cannot_be_seen_a_missing_process_is_gone_and_the_clock_decides_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setattr(leases, "_start", lambda pid: None)
        holder = msgspec.structs.replace(leases.this_process(), pid=child.pid)
        assert leases.running(child.pid, 0) is None
        assert leases.living(stand(holder, expires=NOW + 1), NOW)
        assert not leases.living(stand(holder, expires=NOW), NOW)
        child.kill()
    assert leases.running(child.pid, 0) is False
    assert not leases.living(stand(holder, expires=NOW + 1), NOW)


def test_a_holder_is_told_in_words() -> None:
    host = leases.this_process().host
    assert str(leases.this_process()) == f"pid {os.getpid()} on {host}"
    assert host.isprintable() and " " not in host


def test_what_a_second_writer_is_told() -> None:
    here = leases.this_process()
    neighbour = msgspec.structs.replace(here, pid=here.pid + 1)
    assert str(leases.busy("s", stand(here), NOW)) == (
        f"session 's' is held by {here}; it is open in this very process: close it there first"
    )
    assert str(leases.busy("s", stand(neighbour), NOW)) == (
        f"session 's' is held by {neighbour}; close it there first, or end that process"
    )
    assert str(leases.busy("s", stand(ELSEWHERE, expires=NOW + 1_001), NOW)) == (
        "session 's' is held by pid 4711 on far; close it there first; "
        "if that process is gone, try again in 2 s"
    )


def test_what_a_writer_that_was_taken_over_is_told() -> None:
    lease = Lease("s", "pid 1 on near", 2)
    error = leases.lost(lease, stand(ELSEWHERE))
    assert (
        str(error)
        == "session 's' was taken over by pid 4711 on far; open the session again to go on"
    )
    assert error.session == "s"
