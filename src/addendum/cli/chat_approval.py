"""Asks the person in a chat about tool calls.

Whoever decides sees the arguments as the tool gets them, credentials too: only here, where they are
decided, and nowhere that is written or read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import click

from addendum import encoding
from addendum.agent.calls.approval import Decision, Pending
from addendum.cli.chat_view import say, shade
from addendum.errors import ContentError
from addendum.host.asking import as_run
from addendum.lines import one_line
from addendum.tell.figures import number

SHOWN = 4_000
"""Characters of a call's arguments that are shown."""

_ROW = 100
"""Characters of arguments that stand beside the tool's name."""

_NAME = 200
_QUESTION = "run it? y yes, n [REASON] no, e edit, a always in this session: "


def ask_about(waiting: Sequence[Pending], read: Callable[[str], str]) -> dict[str, Decision]:
    """Ask about calls, one after the other.

    Args:
        waiting: The calls.
        read: Reads a line behind a question.

    Returns:
        The decisions by call id.

    Raises:
        EOFError: The person left; nothing is decided.
        KeyboardInterrupt: As well.
    """
    decisions: dict[str, Decision] = {}
    for place, each in enumerate(waiting, 1):
        of = f"({place} of {len(waiting)}) " if len(waiting) > 1 else ""
        # In full: what is cut off would be approved too.
        whole = as_run(each.arguments)
        short = len(whole) <= _ROW
        question = f"? {of}{one_line(each.name, _NAME)}"
        _ask(f"{question} {as_run(each.arguments, indent=0)}" if short else question)
        if not short:
            _ask(whole[:SHOWN])
        if len(whole) > SHOWN:
            many = number(len(each.arguments))
            say(f"  its arguments have {many} characters; this is their beginning", error=True)
        say(f"  {one_line(each.reason, _NAME)}", dim=True)
        while (decision := _decision(read)) is None:
            pass
        decisions[each.call_id] = decision
    return decisions


def _ask(text: str) -> None:
    """Print what is asked about, as it is: a person has to see what they approve."""
    click.echo(shade(text, bold=True))


def _decision(read: Callable[[str], str]) -> Decision | None:
    word, _, rest = read(_QUESTION).strip().partition(" ")
    match word.lower():
        case "y" | "yes":
            return Decision("approve")
        case "a" | "always":
            return Decision("approve", always=True)
        case "n" | "no":
            return Decision("deny", text=rest.strip())
        case "e" | "edit":
            return _edited(read("arguments, as a JSON object: "))
        case _:
            say("answer y, n, e or a; Ctrl-C leaves, and the call waits", error=True)
            return None


def _edited(text: str) -> Decision | None:
    try:
        value: Any = encoding.decode(encoding.clean(text))
    except ContentError as error:
        say(one_line(str(error), _NAME), error=True)
        return None
    if not isinstance(value, dict):
        say('arguments are a JSON object, such as {"path": "x"}', error=True)
        return None
    return Decision("edit", cast("dict[str, Any]", value))
