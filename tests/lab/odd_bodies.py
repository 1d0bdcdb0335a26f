"""Bodies with something odd in them, and what every provider of the lab owes to those."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from addendum import encoding
from addendum.lab.exchange import Call, Provider, Reply, Switches, handle

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.floats(0, 1),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "name", "role", "content", "id", "tool"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            found += places(inner, (*path, at))
    return found


def answered(
    provider: Provider,
    body: Any,
    path: str,
    headers: dict[str, str],
    *,
    drops_unknown: bool = False,
) -> Reply:
    """Return the answer to a body, which is a refusal in the provider's own shape if it is one."""
    switches = Switches(drops_unknown=drops_unknown)
    call = Call(headers, encoding.encode(body), 0.0, path=path, switches=switches)
    reply = handle(provider, call)
    assert reply.status in (200, 400, 403, 404)
    if reply.status != 200:
        value = encoding.decode(reply.payload)
        error = value.get("error", value)
        assert error["message"] == reply.refusal
        assert "\n" not in error["message"]
    return reply


def changed(body: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """Return a body whose value at a path was changed in its holder."""
    sent = deepcopy(body)
    holder: Any = sent
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return sent


def put(value: Any) -> Callable[[Any, Any], None]:
    return lambda holder, key: operator.setitem(holder, key, deepcopy(value))


def rename(holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder["other"] = holder.pop(key)


ODD = (None, True, 0, -1.5, "", "x", [], {}, [0], ["x"], [{}], {"type": "x"})
CHANGES = (operator.delitem, rename, *map(put, ODD))


def odd(body: Any) -> Iterator[Any]:
    """Yield the body with each change made at each place."""
    for path in places(body):
        for change in CHANGES:
            yield changed(body, path, change)


@st.composite
def changed_twice(draw: st.DrawFn, body: Any) -> Any:
    for _ in range(2):
        path = draw(st.sampled_from(places(body)))
        change = draw(st.sampled_from([operator.delitem, rename]) | anything.map(put))
        body = changed(body, path, change)
    return body
