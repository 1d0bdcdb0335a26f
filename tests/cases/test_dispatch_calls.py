"""What a call of the dispatcher comes to, case by case, as every wire carries it there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Struct
from tests.cases.dispatching import DEFERRED, WIRES, call, envelope, on, played, says, tools_hash

from addendum.agent.calls.hooks import Hook
from addendum.agent.setup import ToolDispatch
from addendum.lab.script import ScriptCall
from addendum.log.events import ToolResult
from addendum.log.values import Call, ToolSchema
from addendum.tools.dispatcher import (
    TOOL_DISPATCHER_NAME,
    NotDispatched,
    Refused,
    Resolved,
    resolve_dispatched_tool_call,
)

pytestmark = pytest.mark.anyio

every_wire = pytest.mark.parametrize("wire", WIRES)


class Row(Struct, frozen=True):
    """A call and what it comes to.

    Attributes:
        made: The call.
        code: Why it is refused; None if it runs.
        ran: The tool that runs, with these arguments.
        says: What the model reads, in part.
        options: Options of the agent.
    """

    made: ScriptCall
    code: str | None = None
    ran: tuple[str, Any] | None = None
    says: str = ""
    options: dict[str, Any] = {}


def to(name: str, arguments: Any) -> ScriptCall:
    return envelope(name=name, arguments=arguments)


def runs(made: ScriptCall, name: str, arguments: Any) -> Row:
    return Row(made, None, (name, arguments), name)


def refused(made: ScriptCall, code: str, says: str, **options: Any) -> Row:
    return Row(made, code, None, says, options)


OSLO = {"city": "Oslo"}
ROWS = [
    pytest.param(runs(to("weather", OSLO), "weather", OSLO), id="case_t9_object"),
    pytest.param(runs(to("weather", '{"city":"Oslo"}'), "weather", OSLO), id="case_t10_text"),
    pytest.param(
        runs(
            to("kinds", {"n": "42", "f": "1.5", "b": "true"}),
            "kinds",
            {"n": 42, "f": 1.5, "b": True},
        ),
        id="case_t12_repaired",
    ),
    pytest.param(refused(to("kinds", {"n": "007"}), "E9", "/n"), id="case_t13_zeros"),
    pytest.param(refused(to("kinds", {"n": "1e3"}), "E9", "/n"), id="case_t13_exponent"),
    pytest.param(
        runs(to("weather", {"city": "00713"}), "weather", {"city": "00713"}),
        id="case_t14_text_stays",
    ),
    pytest.param(
        runs(to("lists", {"ids": "[1,2]"}), "lists", {"ids": [1, 2]}), id="case_t15_list_in_text"
    ),
    pytest.param(
        runs(to("either", {"ids": "[1,2]"}), "either", {"ids": "[1,2]"}),
        id="case_t15_where_text_fits_too",
    ),
    pytest.param(
        runs(
            to("deep", {"rows": [{"a": "1"}], "z": "false"}),
            "deep",
            {"rows": [{"a": 1}], "z": False},
        ),
        id="case_t16_nested",
    ),
    pytest.param(refused(to("weather", {}), "E9", '"city"'), id="case_t17_missing_key"),
    pytest.param(
        refused(to("closed", {"q": "x", "zip": 1}), "E9", '"zip"'), id="case_t18_extra_key"
    ),
    *(
        pytest.param(refused(to("free", arguments), "E8", "JSON object"), id=f"case_t19_{name}")
        for name, arguments in (
            ("list", [1]),
            ("number", 7),
            ("null", None),
            ("text", "not json"),
        )
    ),
    pytest.param(runs(envelope(name="ping"), "ping", {}), id="case_t20_no_arguments"),
    pytest.param(refused(envelope(arguments={"q": "x"}), "E2", "`name`"), id="case_t21_no_name"),
    pytest.param(
        refused(to("call_tool", {"name": "ping", "arguments": {}}), "E3", "cannot call itself"),
        id="case_t22_nested",
    ),
    pytest.param(refused(to("nope", {}), "E4", "tool_search"), id="case_t23_unknown"),
    pytest.param(refused(to("clock", {}), "E6", "directly"), id="case_t24_bound"),
    pytest.param(
        refused(
            to("weather", OSLO), "E7", "not available", can_dispatch=lambda name, _: name == "ping"
        ),
        id="case_t25_no",
    ),
    pytest.param(
        refused(to("weather", OSLO), "E7", "not available", can_dispatch=lambda *_: 1 / 0 > 1),
        id="case_t25_raises",
    ),
    pytest.param(
        refused(to("weather", OSLO), "E5", "switched off", disabled=["weather"]),
        id="case_t27_disabled",
    ),
    pytest.param(refused(to("broken", {"a": "x"}), "E10", "not usable"), id="case_t28_pattern"),
    pytest.param(refused(to("remote", {"a": "x"}), "E10", "not usable"), id="case_t28_remote"),
    pytest.param(runs(to("free", {"any": [1]}), "free", {"any": [1]}), id="case_t29_no_schema"),
]


@pytest.mark.parametrize("row", ROWS)
@every_wire
async def test_a_dispatched_call(wire: str, row: Row) -> None:
    options = dict(row.options)
    if can_dispatch := options.pop("can_dispatch", None):
        options["tool_dispatch"] = ToolDispatch(can_dispatch=can_dispatch)
    async with on(wire, says(row.made)) as here:
        async with here.open(here.agent(**options)) as session:
            await session.run("go")
            (result,) = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
            (told,) = here.exchanges(session.sent[-1])
        assert (result.code, result.is_error) == (row.code, row.code is not None)
        assert here.ran.calls == ([row.ran] if row.ran else [])
        # The answer stands under the dispatcher's call, with what the model wrote untouched.
        assert (told.name, told.arguments) == ("call_tool", row.made.arguments)
        assert row.says in result.text and told.result is not None
        assert row.says in told.result and told.results == 1


def test_case_t11_the_whole_envelope_as_json_text() -> None:
    schema = ToolSchema("weather", "", b'{"properties":{"city":{"type":"string"}}}')  # type: ignore[arg-type]
    text = json.dumps(json.dumps({"name": "weather", "arguments": OSLO}))
    found = resolve_dispatched_tool_call(
        Call("c1", TOOL_DISPATCHER_NAME, text), registry={"weather": schema}, bound=()
    )
    assert isinstance(found, Resolved)
    assert found.call == Call("c1", "weather", '{"city": "Oslo"}', "dispatched")


@every_wire
async def test_case_t26_a_disabled_bound_tool_stays_bound_and_is_refused(wire: str) -> None:
    heard: list[str] = []
    hooks = [Hook(before=lambda c: heard.append(c.name))]
    async with on(wire, says(call("clock")), says(call("clock"), user="again")) as here:
        async with here.open(here.agent(hooks=hooks)) as session:
            await session.run("go")
            await session.tools.refuse("clock")
            await session.run("again")
            ran, off = here.exchanges(session.sent[-1])
            assert len({tools_hash(each) for each in session.sent}) == 1
        assert (here.ran.names, heard) == (["clock"], ["clock"])
        assert ran.result == "clock {}" and "switched off" in (off.result or "")


@every_wire
async def test_case_t36_a_tool_that_raises_is_one_error_under_the_dispatcher(wire: str) -> None:
    async with on(wire, says(to("fails", {}))) as here:
        async with here.open() as session:
            await session.run("go")
            results = [e.data for e in session.log.events if isinstance(e.data, ToolResult)]
            (told,) = here.exchanges(session.sent[-1])
        assert [(r.name, r.is_error, r.code) for r in results] == [("fails", True, "TOOL_FAILED")]
        assert told.name == "call_tool" and "it always fails" in (told.result or "")


@every_wire
async def test_case_t37_one_bad_call_of_a_batch_fails_alone(wire: str) -> None:
    made = [
        call("clock"),
        to("weather", OSLO),
        to("weather", {"town": 1}),
        call("weather", "direct", city="Rome"),
    ]
    async with on(wire, says(*made)) as here:
        found = await played(here)
        assert [each.name for each in found] == ["clock", *["call_tool"] * 3]
        assert [each.results for each in found] == [1] * 4
        wanted = ["clock {}", 'weather {"city": "Oslo"}', "do not fit", 'weather {"city": "Rome"}']
        assert all(part in (each.result or "") for part, each in zip(wanted, found, strict=True))
        assert sorted(here.ran.names) == ["clock", "weather", "weather"]


@every_wire
async def test_case_t38_the_same_target_twice_runs_twice(wire: str) -> None:
    async with on(wire, says(to("weather", OSLO), to("weather", OSLO))) as here:
        found = await played(here)
        assert here.ran.calls == [("weather", OSLO)] * 2
        assert [each.result for each in found] == ['weather {"city": "Oslo"}'] * 2


def test_case_t44_a_call_alone_comes_to_what_it_comes_to_in_a_batch() -> None:
    """There is one resolution, of one call: who delivers calls singly gets the same."""
    registry = {each.name: each for each in DEFERRED}
    for param in ROWS:
        row = param.values[0]
        assert isinstance(row, Row)
        if row.options or row.made.arguments.get("name") == "clock":
            continue
        made = Call("c9", TOOL_DISPATCHER_NAME, json.dumps(row.made.arguments))
        found = resolve_dispatched_tool_call(made, registry=registry, bound={"clock"})
        assert not isinstance(found, NotDispatched)
        assert (found.code if isinstance(found, Refused) else None) == row.code, param.id
        if row.ran:
            assert (found.call.id, found.call.name) == ("c9", row.ran[0])
            assert json.loads(found.call.arguments) == row.ran[1]
