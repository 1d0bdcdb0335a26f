"""How a chat looks: text that flows as it comes, one line for everything else.

What a model, a tool or a server says is data: control characters never reach the terminal. With
no terminal, with NO_COLOR or on a dumb one there is nothing but text.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from addendum import encoding
from addendum.agent.results import (
    Notice,
    ReasoningPiece,
    RequestDone,
    RequestFigures,
    StreamEvent,
    TextPiece,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from addendum.cache.cost import Cost
from addendum.cli.terminal import WIDTH, echo, style, width
from addendum.lines import one_line
from addendum.log.values import Usage
from addendum.masking import Incoming
from addendum.tell.figures import money, number

UNKNOWN = "unknown"
"""How a figure reads that nobody reported."""

_JOINERS = "\u200c\u200d"
"""Format characters that belong to a script or an emoji; all others are left out."""

_LINE = 1000
"""Most characters of a tool's arguments or result that are shown where no terminal cuts them."""


def shade(text: str, **how: Any) -> str:
    """Return text with terminal codes where they are welcome."""
    # Without a style there would still be the code that ends one.
    return style(text, **how) if how and os.environ.get("TERM") != "dumb" else text


def columns() -> int | None:
    """Return how wide text may be; None where there is no terminal, and so no end of a line."""
    return width() if sys.stdout.isatty() else None


def say(text: str = "", *, error: bool = False, **how: Any) -> None:
    """Print lines, wrapped between words where there is a terminal.

    Args:
        text: The lines.
        error: Whether it says what went wrong.
        how: Colours and the like.
    """
    wide = columns()
    for each in text.split("\n"):
        for part in [each] if wide is None else wrapped(each, wide):
            echo(shade(part, **({"fg": "red"} if error else how)))


def wrapped(text: str, wide: int) -> list[str]:
    """Return one line as lines of at most `wide` columns, broken between words."""
    flow = Flow(wide)
    return (flow.feed(text) + flow.end()).rstrip("\n").split("\n")


def fitted(text: str, before: str = "") -> str:
    """Return foreign text as one line that fits behind `before`."""
    wide = columns()
    if wide is None:
        return before + one_line(text, _LINE)
    room = max(10, wide - len(before))
    shown = one_line(text, room)
    while sum(map(_cells, shown)) > room:
        shown = shown[:-2] + "…"
    return before + shown


class Flow:
    """Breaks text into lines as it comes, between words, and makes it safe for a terminal.

    Args:
        wide: Columns of a line; None leaves lines as they are.
    """

    def __init__(self, wide: int | None) -> None:
        self._wide = wide
        self._column = 0
        self._gap = ""
        self._word = ""

    @property
    def open(self) -> bool:
        """Whether the last line was begun and not ended."""
        return self._column > 0 or bool(self._word or self._gap)

    def feed(self, text: str) -> str:
        """Take more text and return what can be shown now; a word is held back until it ends."""
        shown: list[str] = []
        for each in encoding.clean(text):
            if each == "\n":
                shown += [self._place(), "\n"]
                self._column, self._gap = 0, ""
            elif each in " \t":
                shown.append(self._place())
                self._gap += "    " if each == "\t" else " "
            elif each.isprintable() or each in _JOINERS:
                # Scripts without spaces may be broken before any of their signs.
                if self._word and _cells(each) == 2:
                    shown.append(self._place())
                self._word += each
            elif each != "\r":
                self._word += "\ufffd"
        if self._wide is None:
            shown.append(self._place())
        return "".join(shown)

    def end(self) -> str:
        """Return what was held back, and end the line if one is open."""
        rest = self._place() + ("\n" if self._column else "")
        self._column, self._gap = 0, ""
        return rest

    def _place(self) -> str:
        """Return the word that was held back, behind its gap or on a new line."""
        word, self._word = self._word, ""
        if not word:
            return ""
        gap, self._gap = self._gap, ""
        if self._wide is None:
            self._column += len(gap) + len(word)
            return gap + word
        cells = sum(map(_cells, word))
        before = gap
        if self._column + len(gap) + cells > self._wide and self._column:
            before, self._column = "\n", 0
        else:
            before = gap[: self._wide - 1] if not self._column else gap
            self._column += len(before)
        return before + self._cut(word)

    def _cut(self, word: str) -> str:
        """Return a word with line breaks inside where it is longer than a line."""
        assert self._wide is not None
        shown: list[str] = []
        for each in word:
            cells = _cells(each)
            if self._column + cells > self._wide:
                shown.append("\n")
                self._column = 0
            shown.append(each)
            self._column += cells
        return "".join(shown)


def _cells(each: str) -> int:
    if unicodedata.category(each) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(each) in "WF" else 1


class TurnView:
    """Shows one turn as it happens.

    Attributes:
        requests: Figures of the requests that were answered so far.
    """

    def __init__(self) -> None:
        self.requests: list[RequestFigures] = []
        self._flow: Flow | None = None
        self._kind: type[StreamEvent] | None = None
        self._incoming = Incoming()

    def show(self, event: StreamEvent) -> None:
        """Show an event."""
        match event:
            case TextPiece(text=text):
                self._stream(TextPiece, text)
            case ReasoningPiece(text=text):
                self._stream(ReasoningPiece, text, "thinking: ", dim=True)
            case ToolStarted(name=name, arguments=arguments):
                self._line(fitted(f"{name} {arguments}", "→ "))
            case ToolProgress(name=name, progress=done, total=total, text=text):
                how_far = f"{done:g}" if total is None else f"{done:g} of {total:g}"
                self._line(fitted(f"{name}: {how_far} {text}".rstrip(), "… "))
            case ToolFinished(name=name, text=text, is_error=failed):
                self._line(fitted(f"{name}{' failed' if failed else ''}: {text}", "← "))
            case Notice(text=text):
                self.close()
                say(f"! {one_line(text, _LINE)}", fg="yellow")
            case RequestDone(figures=figures):
                self.requests.append(figures)
            case _:
                self.close()

    def close(self) -> None:
        """End the line of text that is open."""
        if self._flow is not None:
            how = {"dim": True} if self._kind is ReasoningPiece else {}
            rest = self._flow.feed(self._incoming.end()) + self._flow.end()
            echo(shade(rest, **how), nl=False)
            self._flow = None

    def _line(self, text: str) -> None:
        self.close()
        echo(shade(text, dim=True))

    def _stream(self, kind: type[StreamEvent], text: str, before: str = "", **how: Any) -> None:
        if self._flow is None or self._kind is not kind:
            self.close()
            self._flow, self._kind, self._incoming = Flow(columns()), kind, Incoming()
            text = before + text
        # A word is shown when it has ended: what it will be is not known before.
        shown = self._flow.feed(self._incoming.feed(text))
        if shown:
            echo(shade(shown, **how), nl=False)


def figures(usage: Usage, cost: Cost | None, before: str = "") -> str:
    """Return the line of cache figures.

    Args:
        usage: Tokens; what is None there reads `unknown`.
        cost: What they cost, or None if that is not known.
        before: What the figures are of, if that is not plain.
    """
    read, new = _count(usage.cache_read), UNKNOWN
    if usage.prompt is not None and usage.cache_read is not None:
        new = number(usage.prompt - usage.cache_read)
        if usage.prompt:
            # Rounded down: 100 % is all of it.
            read += f" ({usage.cache_read * 100 // usage.prompt} %)"
    parts = [
        f"{before}in {_count(usage.prompt)}",
        f"read {read}",
        f"new {new}",
        f"out {_count(usage.output)}",
        f"cost {UNKNOWN}" if cost is None else money(cost.amount),
        f"saved {UNKNOWN if cost is None else money(cost.saved)}",
    ]
    return " · ".join(parts)


def say_figures(text: str) -> None:
    """Print a line of figures, broken between two of them where it is too long."""
    for each in _broken(text.split(" · "), columns() or WIDTH):
        echo(shade(each, dim=True))


def _broken(parts: Sequence[str], wide: int) -> list[str]:
    rows = [parts[0]]
    for part in parts[1:]:
        if len(rows[-1]) + 3 + len(part) <= wide:
            rows[-1] += f" · {part}"
        else:
            rows.append(part)
    return rows


def _count(tokens: int | None) -> str:
    return UNKNOWN if tokens is None else number(tokens)
