"""What a client reads of a model's call: the real one, or nothing.

A call of the dispatcher becomes the call that it stands for, under the same id. Its arguments are
not checked: the client does that, and what it says goes back to the model. A call that the client
cannot run, since it has taken the tool away or never had it, is answered here and never reaches it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from addendum.errors import AddendumError
from addendum.log.values import ToolSchema
from addendum.tools.dispatcher import TOOL_DISPATCHER_NAME
from addendum.tools.envelope import inner_text, members, plain, with_name, with_parameters
from addendum.wire.splice import Called, Verdict, Withheld

MOST_ROUNDS = 2
"""How often a model is asked again before its answer ends without a call."""


class Judging:
    """Judges the calls of one answer.

    Args:
        active: Names that the client offers, and their definitions where they can be told.
        dispatch: Whether the dispatcher is declared.
    """

    def __init__(self, active: Mapping[str, ToolSchema | None], *, dispatch: bool) -> None:
        self._active = active
        self._registry = {name: each for name, each in active.items() if each is not None}
        self._dispatch = dispatch

    def hold(self, name: str) -> bool:
        """Say whether a call has to be whole before it is judged."""
        return name not in self._active

    def judge(self, call_id: str, name: str, arguments: str) -> Verdict:
        """Return what a client reads of a call."""
        if not (self._dispatch and name == TOOL_DISPATCHER_NAME):
            if name in self._active:
                return Called(name, arguments)
            return Withheld(call_id, name, unknown(name, self._active))
        try:
            return self._opened(call_id, arguments)
        except AddendumError:
            return Withheld(call_id, name, _NO_OBJECT)

    def _opened(self, call_id: str, arguments: str) -> Verdict:
        fields = members(arguments)
        for _ in range(2):
            if fields is None:
                return Withheld(call_id, TOOL_DISPATCHER_NAME, _NO_OBJECT)
            fields, _moved = with_name(fields, self._registry)
            name = plain(fields.get("name"))
            if name != TOOL_DISPATCHER_NAME:
                break
            # An envelope in an envelope stands for the inner one.
            fields = members(inner_text(fields.get("arguments")))
        else:
            return Withheld(call_id, TOOL_DISPATCHER_NAME, _NESTED)
        if not isinstance(name, str) or not name:
            return Withheld(call_id, TOOL_DISPATCHER_NAME, _NAMELESS)
        if name not in self._active:
            return Withheld(call_id, TOOL_DISPATCHER_NAME, unknown(name, self._active))
        inner = inner_text(fields.get("arguments"))
        beside = {key: raw for key, raw in fields.items() if key not in ("name", "arguments")}
        schema = self._registry.get(name)
        if beside and schema is not None:
            inner = with_parameters(beside, inner, "arguments" in fields, schema) or inner
        if members(inner) is None:
            return Withheld(call_id, TOOL_DISPATCHER_NAME, _NO_ARGUMENTS)
        return Called(name, inner)


_NO_OBJECT = (
    f"{TOOL_DISPATCHER_NAME} needs a JSON object with `name` and `arguments`; send the call again "
    "in that form."
)
_NAMELESS = (
    f"{TOOL_DISPATCHER_NAME} needs `name`, the exact full name of a tool, beside `arguments`; send "
    "the call again with it."
)
_NESTED = (
    f"{TOOL_DISPATCHER_NAME} cannot call itself; put the name of the tool you want in `name` and "
    "its own parameters in `arguments`."
)
_NO_ARGUMENTS = (
    f"{TOOL_DISPATCHER_NAME} needs `arguments` as a JSON object; send the call again in that form."
)


def unknown(name: str, active: Collection[str]) -> str:
    """Return what a model reads of a call that its client cannot run."""
    names = ", ".join(sorted(active))
    rest = f"; there are now: {names}" if names else "; there are none now"
    return f"{name[:64]!r} cannot be called in this conversation now{rest}. Go on without it."
