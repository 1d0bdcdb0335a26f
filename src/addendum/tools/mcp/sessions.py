"""What a server's refusal says of our session with it: pure rules over its status and words.

A server that was started anew knows none of the sessions that it gave before. The protocol has one
word for that, status 404; servers have many. What refuses a request that names a session ends that
session: the server is dialled anew, once, and the request is repeated if it surely did not run.

====================================  =========================================
words of `FORGOTTEN`, any status       anew, repeat: it was not let in
4xx to a request with a session        anew, repeat, unless the body is the answer to the request
5xx to a request with a session        anew, no repeat: it may have run
words of `NOT_BEGUN`, any way          anew, repeat: a process behind a bridge was started anew
all else                               the server's answer, for the model
====================================  =========================================

tests/tools/test_mcp_sessions.py has the words that servers were seen to use, with their reports.
"""

from __future__ import annotations

import re
from typing import Literal

Verdict = Literal["answer", "anew", "unsure"]
"""The server's answer; dial anew and repeat; dial anew, and it may have run."""

_BAD = (
    r"(?:not (?:\w+ )?(?:found|known|valid|exist|active|recogni[sz]ed|initiali[sz]ed|open)"
    r"|unknown|valid|expired|terminated|closed|missing|required|stale|lost|gone|no longer|exist"
    r"|unrecogni[sz]ed|ended|timed out|no such|no active|without|deleted|revoked|mismatch)"
)
FORGOTTEN = re.compile(
    rf"session.{{0,60}}?{_BAD}|{_BAD}.{{0,60}}?session|no transport (?:found )?for", re.I
)
"""Says that a session is not known, in any order."""

NOT_BEGUN = re.compile(
    r"(?:server|client|protocol|connection|session|mcp|transport)\W+(?:\w+\W+){0,2}?"
    r"(?:not (?:yet )?(?:been )?|un)initiali[sz]ed|before initiali[sz]ation|initiali[sz]e first",
    re.I,
)
"""Says that the handshake has not been made."""

_OF_THE_REQUEST = frozenset({-32700, -32601, -32602, -32603, -32002})
"""Codes that speak of the request: no JSON, no such method, arguments, failure, no resource."""

_NOT_OF_THE_SESSION = frozenset({408, 413, 414, 429, 431})
"""4xx that speak of time, size and number."""


def judge(*, status: int | None, session: bool, code: int | None, words: str) -> Verdict:
    """Say what an error means that came in place of an answer.

    Args:
        status: Its HTTP status from 400 on; None if it came as an answer (200, or no HTTP at all).
        session: Whether the request named a session.
        code: The protocol's error code in it; None if it is none of the protocol's errors.
        words: What it says.
    """
    if NOT_BEGUN.search(words):
        return "anew"
    if not session:
        return "answer"
    # An error that came as an answer may be a tool's own, which knows sessions of its own.
    if (status is not None or code not in _OF_THE_REQUEST) and FORGOTTEN.search(words):
        return "anew"
    if status is None or code in _OF_THE_REQUEST or status in _NOT_OF_THE_SESSION:
        return "answer"
    return "anew" if status < 500 else "unsure"
