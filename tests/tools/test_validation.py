from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from addendum.tools.validation import (
    MAX_PROBLEMS,
    Problem,
    SchemaUnusable,
    Validator,
    validator_for,
)


def validator(schema: Any) -> Validator:
    return validator_for(json.dumps(schema).encode())


def reasons(schema: Any, arguments: Any) -> list[tuple[str, str]]:
    return [(found.path, found.reason) for found in validator(schema).validate(arguments)]


@pytest.mark.parametrize("parameters", [b"", b"{}", b"null", b"true", b" {} "])
def test_case_t29_no_schema_accepts_any_object(parameters: bytes) -> None:
    found = validator_for(parameters)
    assert found.validate({"any": [1]}) == ()
    assert found.validate(b'{"any":1}') == ()
    assert found.validate([1]) == (Problem("", "must be an object, not array"),)
    assert found.check({"n": "1"}) == ({"n": "1"}, (), ())


def test_problems_name_path_and_reason_without_the_value() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string", "pattern": "^a", "maxLength": 3},
            "mode": {"enum": ["fast", "slow"]},
            "list": {"type": "array", "items": {"type": ["integer", "null"]}},
            "maybe": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]},
            "never": False,
            "one": {"oneOf": [{"type": "integer"}, {"minimum": 0}]},
            "fixed": {"const": {"k": 1}},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    secret = "hunter2" * 100
    value = {
        "n": secret,
        "s": "bcde",
        "mode": secret,
        "list": [1, secret],
        "maybe": 1,
        "never": 1,
        "one": 1,
        "fixed": 2,
        "x/y": 1,
    }
    found = dict(reasons(schema, value))
    told = validator(schema).validate(value)
    assert Problem("", 'does not take "x/y"') in told
    assert Problem("", 'needs "city"') in told
    assert found["/n"] == "must be integer, not string"
    assert found["/mode"] == 'must be one of "fast", "slow"'
    assert found["/list/1"] == "must be integer or null, not string"
    assert found["/maybe"] == "the value is less than the minimum of 3"
    assert found["/never"] == "is not allowed"
    assert len(told) == MAX_PROBLEMS
    assert reasons({"properties": {"one": schema["properties"]["one"]}}, {"one": 1}) == [
        ("/one", "fits more than one form where exactly one is allowed")
    ]
    assert reasons({"properties": {"f": schema["properties"]["fixed"]}}, {"f": 2}) == [
        ("/f", 'must be {"k":1}')
    ]
    assert "hunter2" not in repr(told)


def test_unions_are_told_by_the_branch_that_fits() -> None:
    union = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}]}
    schema = {"properties": {"a": union}}
    assert reasons(schema, {"a": {}}) == [("/a", 'needs "id"')]
    assert reasons(schema, {"a": 1}) == [("/a", "must be object or string, not number")]
    both = {"properties": {"a": {"anyOf": [{"minimum": 3}, {"multipleOf": 2}]}}}
    assert reasons(both, {"a": 1}) == [("/a", "fits none of the 2 forms allowed here")]


def test_no_more_than_ten_problems() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert len(reasons(schema, {"a": ["x"] * 50})) == MAX_PROBLEMS


@pytest.mark.parametrize("arguments", [b"[1]", b"7", b"not json", b'{"a":NaN}', '"text"'])
def test_arguments_that_are_no_object(arguments: bytes | str) -> None:
    assert len(validator({"type": "object"}).validate(arguments)) == 1


def test_the_draft_is_the_one_named() -> None:
    tuple_items = {"properties": {"a": {"items": [{"type": "integer"}]}}}
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema#", **tuple_items}
    assert reasons(draft7, {"a": ["x"]}) == [("/a/0", "must be integer, not string")]
    # Without a draft it is the latest, in which that is a slip: it is read as it was meant.
    assert reasons(tuple_items, {"a": ["x"]}) == [("/a/0", "must be integer, not string")]
    with pytest.raises(SchemaUnusable, match="wrong at /properties/a/items"):
        validator({"properties": {"a": {"items": 5}}})
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema",
        "properties": {"a": {"minimum": 1, "exclusiveMinimum": True}},
    }
    assert reasons(draft4, {"a": 1})
    unknown = {"$schema": "https://example.com/mine", "required": ["a"]}
    assert reasons(unknown, {}) == [("", 'needs "a"')]


def test_formats_and_unknown_keywords_refuse_nothing() -> None:
    schema = {
        "properties": {"a": {"type": "string", "format": "email"}, "b": {"format": "made-up"}},
        "x-note": {"$ref": 3},
    }
    assert validator(schema).validate({"a": "no address", "b": 1}) == ()


@contextmanager
def serving(requests: list[str]) -> Iterator[str]:
    """Serve an empty schema under every path, and note what was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_case_t28_remote_references_are_never_fetched(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text("{}")
    requests: list[str] = []
    with serving(requests) as address:
        for part in (
            {"$ref": f"{address}/x.json"},
            {"$ref": file.as_uri()},
            {"$id": f"{address}/base/", "$ref": "other"},
            {"$ref": "other.json"},
        ):
            for schema in (part, {"properties": {"a": part}}):
                with pytest.raises(SchemaUnusable):
                    validator(schema)
        # An unknown draft is no reason to look for it.
        assert validator({"$schema": f"{address}/mine"}).validate({}) == ()
    assert requests == []


def doubling(levels: int) -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"p{i}": {"allOf": [{"$ref": f"#/$defs/p{i + 1}"}, {"$ref": f"#/$defs/p{i + 1}"}]}
        for i in range(levels)
    }
    parts[f"p{levels}"] = {"type": "object"}
    return {"$ref": "#/$defs/p0", "$defs": parts}


def branching() -> dict[str, Any]:
    forms = [
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/e"}, "k": {"const": number}},
            "required": ["k"],
        }
        for number in (1, 2)
    ]
    return {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": forms}}}


def chain(length: int, end: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {f"c{i}": {"$ref": f"#/$defs/c{i + 1}"} for i in range(length)}
    parts[f"c{length}"] = end
    return {"$ref": "#/$defs/c0", "$defs": parts}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"k": 3}
    for _ in range(levels):
        value = {"a": value, "k": 2}
    return value


HOSTILE: dict[str, tuple[Any, Any]] = {
    "bad pattern": ({"properties": {"a": {"pattern": "("}}}, {"a": "x"}),
    "bad pattern name": ({"patternProperties": {"(": {}}}, {"a": "x"}),
    "huge pattern": ({"properties": {"a": {"pattern": "(a{1000}){1000}"}}}, {"a": "x"}),
    "nested repeats": ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 50_000 + "b"}),
    "backtracking": (
        {"properties": {"a": {"pattern": r"(?:(a*)*)*\1(?!x)b"}}},
        {"a": "a" * 3_000 + "c"},
    ),
    "self reference": ({"$ref": "#"}, {}),
    "circle": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {},
    ),
    "circle in allOf": ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {}),
    "doubling": (doubling(60), {}),
    "branching": (branching(), nested(60)),
    "long chain": (chain(4_000, {}), {}),
    "long chain at every level": (
        chain(1_500, {"properties": {"a": {"$ref": "#/$defs/c0"}}}),
        nested(150),
    ),
    "dynamic": ({"$dynamicRef": "#node", "$dynamicAnchor": "node"}, {}),
    "twins": ({"$defs": {"a": {"$id": "T"}, "b": {"$id": "T"}}}, {}),
    "dead pointer": ({"properties": {"a": {"$ref": "#/$defs/x"}}}, {"a": 1}),
    "dead anchor": ({"properties": {"a": {"$ref": "#x"}}}, {"a": 1}),
    "unknown type": ({"type": "thing"}, {}),
    "no schema": ([1], {}),
    "text": ("x", {}),
    "too large": ({"description": "x" * 300_000}, {}),
    "too deep": (
        json.loads('{"properties":{"a":' * 150 + "{}" + "}}" * 150),
        {"a": 1},
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_case_t28_a_hostile_schema_is_unusable_or_answers_soon(case: str) -> None:
    schema, value = HOSTILE[case]
    start = time.monotonic()
    try:
        validator(schema).check(value)
    except SchemaUnusable as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) <= 200
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("case", [case for case in HOSTILE if case != "nested repeats"])
def test_hostile_schemas_that_are_certainly_unusable(case: str) -> None:
    schema, value = HOSTILE[case]
    with pytest.raises(SchemaUnusable):
        validator(schema).validate(value)


def test_a_pattern_with_look_around_works() -> None:
    schema = {"properties": {"mail": {"pattern": r"^(?!\.)[a-z.]+@[a-z.]+$"}}}
    assert validator(schema).validate({"mail": "a.b@c.de"}) == ()
    assert reasons(schema, {"mail": ".a@c.de"})[0][0] == "/mail"


def test_local_references_of_every_kind() -> None:
    schema = {
        "$id": "http://example.com/root",
        "properties": {
            "a": {"$ref": "#/$defs/with~1slash%20and~0"},
            "b": {"$ref": "#named"},
            "c": {"$ref": "T0"},
            "d": {"$ref": "http://example.com/root#/$defs/number"},
        },
        "$defs": {
            "with/slash and~": {"type": "integer"},
            "x": {"$anchor": "named", "type": "integer"},
            "number": {"type": "integer"},
            "t": {
                "$id": "T0",
                "type": "array",
                "items": {"$ref": "#/$defs/i"},
                "$defs": {"i": {"type": "integer"}},
            },
        },
    }
    good = {"a": 1, "b": 1, "c": [1], "d": 1}
    assert validator(schema).validate(good) == ()
    bad = {"a": "x", "b": "x", "c": ["x"], "d": "x"}
    assert [path for path, _ in reasons(schema, bad)] == ["/a", "/b", "/c/0", "/d"]
    assert validator(schema).check({"c": ["1"]}).value == {"c": [1]}


def test_large_arguments_are_checked_but_not_told_one_by_one() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert validator(schema).validate({"a": [1] * 100_000}) == ()
    assert reasons(schema, {"a": [1] * 100_000 + ["x"]}) == [
        ("", "do not match the schema, and are too large to say where")
    ]


def test_check_repairs_only_what_is_wrong_and_tells_the_rest() -> None:
    schema = {
        "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}},
        "required": ["k"],
    }
    value = {"n": "1", "m": "x"}
    checked = validator(schema).check(value)
    assert checked.value == {"n": 1, "m": "x"} and checked.changed == ("/n",)
    assert [found.path for found in checked.problems] == ["", "/m"]
    good = {"n": 1, "k": 0}
    assert validator(schema).check(good).value is good


def test_a_schema_is_compiled_once() -> None:
    parameters = b'{"required":["compiled-once"]}'
    assert validator_for(parameters) is validator_for(Raw(parameters))
    with pytest.raises(SchemaUnusable) as first:
        validator_for(b'{"type":"thing"}')
    with pytest.raises(SchemaUnusable) as second:
        validator_for(b'{"type":"thing"}')
    assert str(first.value) == str(second.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
WORDS = [
    "type", "properties", "items", "$ref", "allOf", "anyOf", "not", "if", "$id", "$defs", "enum",
    "pattern", "required", "prefixItems", "additionalProperties", "dependentSchemas", "$anchor",
    "patternProperties", "propertyNames", "unevaluatedProperties", "contains", "$schema", "const",
]  # fmt: skip
LIKE_SCHEMAS = st.recursive(
    st.booleans() | st.sampled_from(["#", "#/$defs/a", "integer", "object", "(", "^a", 3, None]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*WORDS, "a"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(LIKE_SCHEMAS | JSON, JSON)
def test_whatever_comes_only_schema_unusable_is_raised(schema: Any, value: Any) -> None:
    try:
        found = validator(schema)
        checked = found.check(value)
    except SchemaUnusable:
        return
    assert len(checked.problems) <= MAX_PROBLEMS
    if not checked.problems:
        assert found.validate(checked.value) == ()
