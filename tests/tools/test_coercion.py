from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addendum import encoding
from addendum.tools.coercion import coerce, pointer
from addendum.tools.validation import validator_for

INTEGER, NUMBER, BOOLEAN = ({"type": kind} for kind in ("integer", "number", "boolean"))
STRING = {"type": "string"}


def properties(**parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (INTEGER, "42", 42),
        (INTEGER, "-7", -7),
        (INTEGER, "0", 0),
        (INTEGER, "9007199254740991", 2**53 - 1),
        (NUMBER, "1.5", 1.5),
        (NUMBER, "-0.25", -0.25),
        (NUMBER, "0.000001", 1e-06),
        (NUMBER, "42", 42),
        (NUMBER, "100000000000000000000", 10**20),
        (BOOLEAN, "true", True),
        (BOOLEAN, "false", False),
        ({"type": ["integer", "null"]}, "1", 1),
        ({"type": ["integer"]}, "1", 1),
        ({"type": ["integer", "number"]}, "1", 1),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "1", 1),
        ({"oneOf": [{"const": None}, BOOLEAN]}, "true", True),
        ({"allOf": [INTEGER]}, "1", 1),
        ({"allOf": [NUMBER, INTEGER]}, "1", 1),
        ({"type": "array", "items": INTEGER}, "[1, 2]", [1, 2]),
        ({"type": "object"}, ' {"a":"1"}', {"a": "1"}),
        ({"type": ["object", "array"]}, "[1]", [1]),
        ({"$ref": "#/$defs/n", "$defs": {"n": INTEGER}}, "1", 1),
    ],
)
def test_what_is_repaired(schema: Any, text: str, value: Any) -> None:
    result, changed = (
        coerce(properties(a=schema), {"a": text})
        if "$ref" not in schema
        else (
            {"a": coerce(schema, text)[0]},
            ("/a",),
        )
    )
    assert (result, changed) == ({"a": value}, ("/a",))
    assert type(result["a"]) is type(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        *((INTEGER, text) for text in ("007", "+3", "1e3", "1.0", " 1", "1 ", "-0", "", "٣")),
        (INTEGER, "9007199254740992"),
        *((NUMBER, text) for text in ("1.50", "1e3", "01.5", ".5", "1.", "NaN", "Infinity", "-0")),
        (NUMBER, "9007199254740993"),
        (NUMBER, "0.1000000000000000055"),
        (NUMBER, "0.0000001"),
        (NUMBER, "1000000000000000000000"),
        *((BOOLEAN, text) for text in ("True", "1", "yes", "null")),
        (BOOLEAN, 1),
        (INTEGER, True),
        (INTEGER, 1.0),
        (STRING, "00713"),
        (STRING, 5),
        ({"type": ["integer", "string"]}, "1"),
        ({"anyOf": [INTEGER, BOOLEAN]}, "1"),
        ({"anyOf": [STRING, {"type": "array"}]}, "[1]"),
        ({"type": ["array", "string"]}, "[1]"),
        ({"type": "array"}, '{"a":1}'),
        ({"type": "object"}, '{"a":'),
        ({"type": "object"}, '"{}"'),
        ({}, "1"),
        ({"enum": [1, 2]}, "1"),
        ({"type": "null"}, "null"),
        (True, "1"),
    ],
)
def test_what_stays(schema: Any, value: Any) -> None:
    given_value = {"a": value}
    result, changed = coerce(properties(a=schema), given_value)
    assert result is given_value and changed == ()


def test_repair_reaches_every_place_and_leaves_the_original_alone() -> None:
    schema = {
        **properties(
            list={"type": "array", "items": properties(n=INTEGER)},
            pair={"type": "array", "prefixItems": [INTEGER, STRING], "items": BOOLEAN},
            old={"items": [INTEGER], "additionalItems": NUMBER},
            map={"type": "object", "additionalProperties": INTEGER},
        ),
        "additionalProperties": BOOLEAN,
    }
    value = {
        "list": '[{"n":"1","m":"2"}]',
        "pair": ["1", "2", "true"],
        "old": ["1", "2.5"],
        "map": {"k/~": "3"},
        "other": "false",
    }
    before = encoding.encode(value)
    result, changed = coerce(schema, value)
    assert result == {
        "list": [{"n": 1, "m": "2"}],
        "pair": [1, "2", True],
        "old": [1, 2.5],
        "map": {"k/~": 3},
        "other": False,
    }
    assert changed == (
        "/list",
        "/list/0/n",
        "/pair/0",
        "/pair/2",
        "/old/0",
        "/old/1",
        "/map/k~1~0",
        "/other",
    )
    assert encoding.encode(value) == before


def test_a_key_that_a_pattern_may_take_is_not_additional() -> None:
    schema = {"patternProperties": {"^x": STRING}, "additionalProperties": INTEGER}
    assert coerce(schema, {"x": "1", "y": "2"}) == ({"x": "1", "y": "2"}, ())


def test_references_are_followed_into_recursive_definitions() -> None:
    node = properties(n=INTEGER, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    value = {"n": "1", "next": {"n": "2", "next": '{"n":"3","next":null}'}}
    assert coerce(schema, value)[0] == {
        "n": 1,
        "next": {"n": 2, "next": {"n": 3, "next": None}},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1/x"},
        {"$dynamicRef": "#x"},
        {"properties": 3, "items": 4, "allOf": 5, "anyOf": {}, "type": {}},
    ],
)
def test_a_hostile_schema_repairs_nothing_and_ends(schema: Any) -> None:
    value = {"a": "1"}
    assert coerce(schema, value) == (value, ())


def test_a_doubling_schema_costs_no_more_than_its_size() -> None:
    parts: dict[str, Any] = {
        f"p{i}": {"allOf": [{"$ref": f"#/$defs/p{i + 1}"}, {"$ref": f"#/$defs/p{i + 1}"}]}
        for i in range(60)
    }
    parts["p60"] = properties(n=INTEGER)
    assert coerce({"$ref": "#/$defs/p0", "$defs": parts}, {"n": "1"})[0] == {"n": 1}


def test_deep_values_are_left_alone() -> None:
    schema = {"additionalProperties": {"$ref": "#"}, "type": ["object", "integer"]}
    value: Any = "1"
    for _ in range(5_000):
        value = {"a": value}
    assert coerce(schema, value) == (value, ())


def test_pointers() -> None:
    assert pointer(()) == ""
    assert pointer(("a/b", 0, "~")) == "/a~1b/0/~0"


SCALARS = st.sampled_from(
    ["1", "1.5", "007", "true", "x", "[1]", '{"a":"2"}', '["3"]', 1, 1.5, True, None]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
KINDS = ["integer", "number", "boolean", "string", "object", "array", "null"]
SCHEMAS = st.recursive(
    st.just({})
    | st.builds(lambda kind: {"type": kind}, st.sampled_from(KINDS))
    | st.builds(
        lambda kinds: {"type": kinds},
        st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True),
    )
    | st.builds(lambda name: {"$ref": f"#/$defs/{name}"}, st.sampled_from("xy"))
    | st.builds(lambda value: {"const": value}, SCALARS),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(KINDS),
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.builds(lambda part: {"^a": part}, inner),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    ),
    max_leaves=8,
)
ROOTS = st.builds(
    lambda schema, x, y: {**schema, "$defs": {"x": x, "y": y}},
    SCHEMAS,
    st.sampled_from([INTEGER, properties(a=INTEGER), {"items": {"$ref": "#/$defs/y"}}]),
    st.sampled_from([BOOLEAN, {"type": ["array", "null"], "items": {"$ref": "#/$defs/x"}}]),
)


@given(ROOTS, VALUES)
def test_coercion_is_idempotent(schema: Any, value: Any) -> None:
    once, _ = coerce(schema, value)
    twice, changed = coerce(schema, once)
    assert changed == ()
    assert encoding.encode(twice) == encoding.encode(once)


@given(ROOTS, st.dictionaries(st.sampled_from("abc"), VALUES))
def test_a_valid_value_is_never_changed(schema: Any, value: Any) -> None:
    validator = validator_for(encoding.encode(schema))
    if not validator.validate(value):
        assert coerce(schema, value) == (value, ())
