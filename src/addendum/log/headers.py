"""Rules of headers and prompts: what a step logs before its request.

These are the rules for request series and prompts; they read the log and write events, and know
nothing of wires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from addendum.log.events import DeveloperMessage, Event, RequestHeader, SystemMessage
from addendum.log.session_log import SessionLog
from addendum.log.values import Header, ToolAddition, ToolRemoval


def moved_since_request(log: SessionLog) -> bool:
    """Say whether the surface was replaced somewhere since the last request."""
    return log.state.generation not in (None, log.surface.generation)


def same_header(one: Header, other: Header) -> bool:
    """Compare two headers: settings, and definitions pairwise in order."""
    return (
        one.config == other.config
        and one.adapter_defaults == other.adapter_defaults
        and same_tools(one, other)
    )


def same_tools(one: Header, other: Header) -> bool:
    """Compare the definitions of two headers, pairwise in order."""
    return one.tools is other.tools or (
        len(one.tools) == len(other.tools)
        and all(
            a is b or a.identity() == b.identity()
            for a, b in zip(one.tools, other.tools, strict=True)
        )
    )


def log_prompt(
    log: SessionLog, static: str, conversation: str, *, appendable: bool, new_series: bool
) -> bool:
    """Bring the prompt on the surface up to date.

    Args:
        log: The session's log.
        static: Text that is the same in every conversation of the agent.
        conversation: Text of this conversation.
        appendable: Whether the route takes a changed prompt in the history.
        new_series: Whether a series starts, for the prompt's purposes.

    Returns:
        Whether a prompt was rewritten in place, which starts a series.
    """
    wanted = SystemMessage(static, conversation)
    live = log.surface.notes[SystemMessage]
    current = next((node for node in reversed(live) if not _empty(node)), None)
    if (current.data if current else SystemMessage()) == wanted:
        return False
    if not live or (appendable and not new_series and not wanted.empty):
        log.append(wanted)
        return False
    # Consolidate: nothing older may stay visible.
    for node in live[1:]:
        if not _empty(node):
            log.append(SystemMessage(), replace=(node.seq, node.seq))
    log.append(wanted, replace=(live[0].seq, live[0].seq))
    return True


def _empty(node: Event) -> bool:
    return isinstance(node.data, SystemMessage) and node.data.empty


def log_header(
    log: SessionLog,
    header: Header,
    *,
    first: bool,
    series: bool,
    head: bool = False,
    found: Callable[[], Collection[str]] = tuple,
) -> bool:
    """Log the header if it says anything new, and the message about changed names.

    Args:
        log: The session's log, with an open step.
        header: Active tools and settings of this step.
        first: Whether this is the first request since the session was opened.
        series: Whether a request series starts here.
        head: Whether it becomes the session's new head.
        found: Names in the header that are to be told as added although the header before had
            them: deferred tools that a search has shown. Asked once the header is in the log.

    Returns:
        Whether a message about names was logged.
    """
    preceding = log.header
    if preceding is None:
        log.append(RequestHeader(header, "initial"))
        return False
    changed = not same_header(preceding.header, header)
    series = series or head
    if first:
        reason = "resume"
    elif changed:
        reason = "change"
    elif series:
        reason = "series"
    else:
        reason = None
    if reason is not None:
        log.append(RequestHeader(header, reason, series and reason != "series", head))
    shown = found()
    if reason is None and not shown:
        return False
    # As keys: in order, and quick to ask for with thousands of tools.
    old = dict.fromkeys(tool.name for tool in preceding.header.tools)
    new = dict.fromkeys(tool.name for tool in header.tools)
    added = [ToolAddition(name) for name in new if name not in old or name in shown]
    removed = [ToolRemoval(name) for name in old if name not in new]
    if not added and not removed:
        return False
    assert log.turn is not None and log.step is not None
    log.append(
        DeveloperMessage(log.turn, log.step, (*added, *removed), log.header_seq if added else None)
    )
    return True


def tools_changed(log: SessionLog, header: Header) -> bool:
    """Say whether this header would change the tools: names, definitions or order."""
    before = log.header
    return before is not None and not same_tools(before.header, header)
