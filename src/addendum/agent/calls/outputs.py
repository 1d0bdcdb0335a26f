"""The results of a session by the labels under which later calls refer to them.

What a compaction took from the model's sight can be referred to still: its summary may name the
label. What was rewound is gone: nobody is to send on what a person took back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from addendum.log.events import AssistantMessage, Event, Rewind, ToolResult
from addendum.tools.envelope import MAX_ARGUMENTS
from addendum.tools.output_references import fill, label, references


class Outputs:
    """Labels and results of one session: a fold of the log."""

    kinds: ClassVar[frozenset[type]] = frozenset({AssistantMessage, ToolResult, Rewind})

    def __init__(self) -> None:
        self._rounds = 0
        self._texts: dict[str, str] = {}
        self._turns: dict[str, int] = {}
        self._unknown: dict[str, tuple[str, ...]] = {}

    def take(self, event: Event) -> None:
        """Take in a round, a result, or that turns were cut."""
        data = event.data
        if isinstance(data, AssistantMessage) and data.calls:
            self._rounds += 1
            # By the model's own words, and before any result of this very round.
            self._unknown = {
                call.id: tuple(
                    each for each in references(call.arguments) if each not in self._texts
                )
                for call in data.calls
            }
        elif isinstance(data, ToolResult) and data.label is not None:
            self._texts[data.label] = data.text
            self._turns[data.label] = data.turn
        elif isinstance(data, Rewind):
            for name in [each for each, turn in self._turns.items() if turn >= data.to_turn]:
                del self._texts[name], self._turns[name]

    def texts(self) -> Mapping[str, str]:
        """Return the results that there are now, by label."""
        return dict(self._texts)

    def next_label(self, place: int) -> str:
        """Return the label of a result of the latest round.

        Args:
            place: The call's place in it.
        """
        return label(place, self._rounds - 1)

    def unknown(self, call_id: str) -> tuple[str, ...]:
        """Return what a call of the latest round refers to and no earlier result is labelled with.

        Args:
            call_id: The call's id.
        """
        return self._unknown.get(call_id, ())


def filled(arguments: Any, texts: Mapping[str, str]) -> Any:
    """Return decoded arguments with the results put in that they refer to.

    Raises:
        ContentError: They are too long.
    """
    return fill(arguments, texts, limit=MAX_ARGUMENTS)
