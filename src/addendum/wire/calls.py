"""Calls as they come: ids that are missing or taken, and arguments in pieces.

What the log keeps of a call has to be taken back on the route that made it: one id a call, and in
one answer no id twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw

from addendum import encoding
from addendum.errors import StreamBroken
from addendum.log.values import Call
from addendum.tools.envelope import meant
from addendum.wire.answer import Answer
from addendum.wire.endings import has_members, joined, may_be_cut, named, stopped, worse


class Ids:
    """The ids of one answer's calls."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, given: str, seed: str) -> str:
        """Return a call's own id, or one of ours where it has none or another call has it.

        Ours are nine letters and digits, which every provider takes, Mistral's included.

        Args:
            given: The id that came, or ''.
            seed: What else is known of the call; the same gives the same id.
        """
        found, turn = given, 0
        while not found or found in self._taken:
            found = encoding.digest(f"{turn} {given} {seed}")[:9]
            turn += 1
        self._taken.add(found)
        return found


class Draft:
    """A call as it grows.

    Attributes:
        id: Its id, once that is settled.
        name: Its name; '' if none came, which no tool has.
        open: Whether nothing says yet that the call itself has ended.
        cut: Whether the wire says of this very call that it is not whole.
        mended: Whether its arguments came as JSON that a server has read, and may have closed.
    """

    def __init__(self, id: str = "", name: str = "") -> None:
        self.id = id
        self.name = name
        self.open = True
        self.cut = False
        self.mended = False
        self.pieces: list[str] = []
        self._judged = (-1, False)

    @property
    def written(self) -> str:
        """The argument text as it came."""
        return "".join(self.pieces)

    @property
    def arguments(self) -> str:
        """The argument text as it counts; none at all is `{}`."""
        return meant(self.written)

    @property
    def has_members(self) -> bool:
        """Whether its arguments are an object with something in it."""
        if self._judged[0] != len(self.pieces):
            self._judged = len(self.pieces), has_members(self.written)
        return self._judged[1]

    def restart(self) -> None:
        """Forget the arguments that came: others stand for them."""
        self.pieces = []
        self._judged = -1, False

    def call(self) -> Call:
        """Return the call as it stands."""
        return Call(self.id, self.name, self.arguments)


def settled(drafts: Iterable[Draft]) -> tuple[Call, ...]:
    """Return the calls that nothing which may come changes, nor makes cut ones."""
    return tuple(
        draft.call()
        for draft in drafts
        if not (draft.open or draft.cut or draft.mended) and draft.has_members
    )


def assembled(
    answer: Answer,
    drafts: Sequence[Draft],
    *,
    details: Mapping[str, Raw],
    refused: bool = False,
    most: int | None = None,
) -> Answer:
    """Return an answer with its calls, how it ended, and which calls may have been cut.

    Args:
        answer: All else of it.
        drafts: Its calls.
        details: What else the provider said of how it ended.
        refused: Whether the model itself refused.
        most: Tokens of output that the request allows. Some servers call an answer whole that used
            all of them (vllm-project/vllm#58228).

    Raises:
        StreamBroken: The provider gave it up, and there is nothing to go on with.
    """
    ending = stopped(answer.stop).ending
    if refused:
        ending = worse(ending, "withheld")
    output = answer.usage.output
    if ending == "whole" and most is not None and output is not None and output >= most:
        ending = "cut"
        for draft in drafts[-1:]:
            draft.open = True
    if answer.complete and ending == "trouble" and not (answer.text or answer.reasoning or drafts):
        raise StreamBroken(
            f"the provider ended its answer with an error ({named(answer.stop, details)}); send it "
            "again",
            again=True,
        )
    # A stop sequence inside of arguments ends an answer that is whole, and not a call that is.
    surely = ending != "whole" or (answer.stop or "").casefold() != "stop_sequence"
    kept = [draft for draft in drafts if answer.complete or draft.name]
    return msgspec.structs.replace(
        answer,
        calls=tuple(draft.call() for draft in kept),
        ending=ending,
        cut=tuple(
            draft.id
            for draft in kept
            if may_be_cut(
                ending if surely else "unknown", draft.written, open=draft.open, cut=draft.cut
            )
        ),
        details=joined(details, ending),
    )
