"""What a session's folds hold, as plain values to be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any, cast

from msgspec import Struct, json

from addendum.agent.state import State
from addendum.log import codec
from addendum.log.events import Event
from addendum.log.session_log import SessionLog


def held(state: State) -> dict[str, Any]:
    """Return what each fold holds, and what the log itself does."""
    _ = state.history.history  # It is made when it is asked for.
    names = [name for name, fold in vars(State).items() if isinstance(fold, cached_property)]
    folds = {name: plain(getattr(state, name)) for name in names}
    return folds | {"log": plain(vars(state)["_log"].state)}


def plain(value: Any) -> Any:
    """Return a value without classes of its own."""
    if isinstance(value, Struct):
        return json.encode(value)
    if isinstance(value, str | bytes | int | float | bool | None):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(plain(key)): plain(each) for key, each in items}
    if isinstance(value, Set):
        return sorted(map(str, map(plain, cast("Set[Any]", value))))
    if isinstance(value, Sequence):
        return [plain(each) for each in cast("Sequence[Any]", value)]
    return plain(vars(value))


def check_folds(events: Sequence[Event], places: int = 6) -> None:
    """Check that the folds of a growing log are those of the whole one, as of every place."""
    rows = [codec.encode_event(event) for event in events]
    whole = State(SessionLog.load("s", rows))
    growing = SessionLog("s")
    running = State(growing)
    held(running)
    every = max(1, len(rows) // places)
    for seq, row in enumerate(rows):
        if seq % every == 0:
            assert held(whole.at(seq)) == held(running), seq
        growing.extend([row])
    assert held(whole) == held(running)
