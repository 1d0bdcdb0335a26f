from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from addendum import encoding
from addendum.log.events import Call, ToolSchema
from addendum.tools.dispatcher import (
    CALL_TOOL,
    CALL_TOOL_TEXT,
    MAX_ARGUMENTS,
    RESERVED_NAMES,
    TOOL_DISPATCHER_NAME,
    NotDispatched,
    Refused,
    Resolved,
    is_dispatchable,
    resolve_call,
    resolve_dispatched_tool_call,
    rewrite_direct_call,
)
from addendum.tools.search import TOOL_SEARCH_NAME
from addendum.tools.validation import validator_for


def make(name: str, properties: Any = None, **keywords: Any) -> ToolSchema:
    schema = {"type": "object", "properties": properties or {}, **keywords}
    return ToolSchema(name, f"{name}.", Raw(json.dumps(schema).encode()))


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
REGISTRY = {
    found.name: found
    for found in [
        make("web_search", {"q": STRING}, required=["q"]),
        make(
            "weather",
            {"city": STRING, "days": INTEGER},
            required=["city"],
            additionalProperties=False,
        ),
        make("kinds", {"n": INTEGER, "f": {"type": "number"}, "b": {"type": "boolean"}}),
        make("ping", additionalProperties=False),
        make("user", {"name": STRING, "age": INTEGER}, required=["name"]),
        make("run", {"cmd": STRING, "arguments": {"type": "array"}}),
        make("nested", {"ids": {"type": "array", "items": INTEGER}, "s": STRING}),
        make(
            "either",
            {"ids": {"anyOf": [{"type": "array", "items": INTEGER}, STRING]}},
        ),
        make("github__search", {"q": STRING}),
        make("broken", {"a": {"pattern": "("}}),
        make("remote", {"a": {"$ref": "http://127.0.0.1:9/a"}}),
        make("circle", {"a": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"$ref": "#/$defs/a"}}}),
        ToolSchema("free", "Anything.", Raw(b"{}")),
        ToolSchema("absent", "Anything.", Raw(b"")),
        make("big", {f"parameter_{i}": STRING for i in range(200)}, required=["must"]),
    ]
}
BOUND = frozenset({"web_search"})


def through(arguments: Any, **rules: Any) -> Resolved | Refused:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = Call("c1", TOOL_DISPATCHER_NAME, text)
    found = resolve_dispatched_tool_call(call, **{"registry": REGISTRY, "bound": BOUND, **rules})
    assert not isinstance(found, NotDispatched)
    assert found == resolve_call(call, **{"registry": REGISTRY, "bound": BOUND, **rules})
    return found


def directly(name: str, arguments: str = "{}", **rules: Any) -> Resolved | Refused:
    call = Call("c1", name, arguments)
    return resolve_call(call, **{"registry": REGISTRY, "bound": BOUND, **rules})


def runs(found: Resolved | Refused) -> Any:
    assert isinstance(found, Resolved), found
    assert found.schema is REGISTRY[found.call.name]
    assert found.call.id == "c1"
    if not found.coerced:
        assert found.call.arguments == found.given
    return json.loads(found.call.arguments)


def refused(found: Resolved | Refused, code: str) -> str:
    assert isinstance(found, Refused), found
    assert (found.code, found.call.id) == (code, "c1")
    known = code not in ("E1", "E2", "E3", "E4", "UNKNOWN_TOOL")
    assert found.target == (found.call.name if known else None)
    assert "\n" not in found.message
    return found.message


def test_the_fixed_tool() -> None:
    schema = json.loads(bytes(CALL_TOOL.parameters))
    assert CALL_TOOL.name == TOOL_DISPATCHER_NAME == "call_tool"
    assert schema["required"] == ["name", "arguments"]
    assert schema["additionalProperties"] is False
    assert not {"oneOf", "anyOf", "allOf"} & schema.keys()
    assert schema["properties"]["arguments"]["type"] == "object"
    text = json.loads(bytes(CALL_TOOL_TEXT.parameters))
    assert text["properties"]["arguments"]["type"] == "string"
    assert CALL_TOOL.description == CALL_TOOL_TEXT.description
    assert "<tool_update>" in CALL_TOOL.description and "no orders" in CALL_TOOL.description
    assert validator_for(CALL_TOOL.parameters).validate({"name": "x", "arguments": {"a": 1}}) == ()
    assert RESERVED_NAMES == {TOOL_DISPATCHER_NAME, TOOL_SEARCH_NAME}


def test_case_t9_the_target_with_its_own_arguments_under_the_same_id() -> None:
    found = through('{"name":"weather","arguments": {"city" : "Oslo"}}')
    assert found == Resolved(
        REGISTRY["weather"], Call("c1", "weather", '{"city" : "Oslo"}', "dispatched"),
        '{"city" : "Oslo"}',
    )  # fmt: skip


def test_case_t10_arguments_as_json_text() -> None:
    found = through({"name": "weather", "arguments": '{"city" :"Oslo"}'})
    assert runs(found) == {"city": "Oslo"}
    assert isinstance(found, Resolved) and found.given == '{"city" :"Oslo"}'
    assert not found.coerced


def test_case_t11_the_whole_envelope_as_json_text() -> None:
    envelope = json.dumps({"name": "weather", "arguments": {"city": "Oslo"}})
    assert runs(through(json.dumps(envelope))) == {"city": "Oslo"}


def test_case_t12_kinds_are_repaired() -> None:
    found = through({"name": "kinds", "arguments": {"n": "42", "f": "1.5", "b": "true"}})
    assert runs(found) == {"n": 42, "f": 1.5, "b": True}
    assert isinstance(found, Resolved) and found.coerced
    assert json.loads(found.given) == {"n": "42", "f": "1.5", "b": "true"}


@pytest.mark.parametrize("text", ["007", "1e3"])
def test_case_t13_a_number_written_otherwise_is_refused(text: str) -> None:
    message = refused(through({"name": "kinds", "arguments": {"n": text}}), "E9")
    assert "/n: must be integer, not string" in message and text not in message


def test_case_t14_text_is_never_touched() -> None:
    text = '{"name":"weather","arguments":{"city":"00713"}}'
    assert runs(through(text)) == {"city": "00713"}


def test_case_t15_a_list_written_as_text() -> None:
    assert runs(through({"name": "nested", "arguments": {"ids": "[1,2]"}})) == {"ids": [1, 2]}
    found = through({"name": "either", "arguments": {"ids": "[1,2]"}})
    assert runs(found) == {"ids": "[1,2]"}
    assert isinstance(found, Resolved) and not found.coerced


def test_case_t16_repair_goes_into_items_and_additional_properties() -> None:
    target = make(
        "deep",
        {"rows": {"type": "array", "items": {"additionalProperties": INTEGER}}},
        additionalProperties={"type": "boolean"},
    )
    found = resolve_call(
        Call(
            "c1",
            TOOL_DISPATCHER_NAME,
            '{"name":"deep","arguments":{"rows":[{"a":"1"}],"z":"false"}}',
        ),
        registry={"deep": target},
        bound=(),
    )
    assert isinstance(found, Resolved)
    assert found.call.arguments == '{"rows":[{"a":1}],"z":false}'


def test_case_t17_a_missing_key_is_named_with_the_schema() -> None:
    message = refused(through({"name": "weather", "arguments": {}}), "E9")
    assert 'arguments: needs "city"' in message
    assert bytes(REGISTRY["weather"].parameters).decode() in message
    assert "call call_tool again" in message


def test_case_t18_an_extra_key() -> None:
    message = refused(through({"name": "weather", "arguments": {"city": "O", "zip": 1}}), "E9")
    assert 'does not take "zip"' in message


@pytest.mark.parametrize("arguments", [[1], 7, None, "not json", "[1]", True, '"{}"'])
def test_case_t19_arguments_that_are_no_object(arguments: Any) -> None:
    message = refused(through({"name": "weather", "arguments": arguments}), "E8")
    assert "must be a JSON object" in message


def test_case_t20_no_arguments() -> None:
    assert runs(through({"name": "ping"})) == {}
    assert runs(through({"name": "ping", "arguments": ""})) == {}
    assert runs(directly("ping", "")) == {}


@pytest.mark.parametrize("envelope", ["", "{}", {"name": ""}, {"name": 3}, {"arguments": {}}])
def test_case_t21_no_name(envelope: Any) -> None:
    assert "needs `name`" in refused(through(envelope), "E2")


@pytest.mark.parametrize("inner", [{"name": "ping", "arguments": {}}, {}, None, "{}"])
def test_case_t22_the_dispatcher_in_itself(inner: Any) -> None:
    refused(through({"name": "call_tool", "arguments": inner}), "E3")


def test_case_t23_an_unknown_target_points_to_search_only_if_there_is_one() -> None:
    with_search = refused(through({"name": "nope", "arguments": {}}), "E4")
    assert TOOL_SEARCH_NAME in with_search and '"nope"' in with_search
    without = refused(through({"name": "nope", "arguments": {}}, search_bound=False), "E4")
    assert TOOL_SEARCH_NAME not in without


def test_an_unknown_target_names_at_most_three_near_tools_that_may_be_used() -> None:
    def message(name: str, **rules: Any) -> str:
        return refused(through({"name": name}, **rules), "E4")

    assert 'Did you mean "github__search"?' in message("search")
    assert 'Did you mean "weather"?' in message("Weathr")
    assert "Did you mean" not in message("Weathr", disabled={"weather"})
    assert "Did you mean" not in message("Weathr", can_dispatch=lambda name, _: name == "ping")
    assert "Did you mean" not in message("web_serch")
    many = {f"tool_{i}": make(f"tool_{i}") for i in range(9)}
    assert message("tool_x", registry=many, search_bound=False).count("tool_") == 4


@pytest.mark.parametrize("name", ["web_search", TOOL_SEARCH_NAME])
def test_case_t24_a_bound_target_is_to_be_called_directly(name: str) -> None:
    message = refused(through({"name": name, "arguments": {"q": "x"}}), "E6")
    assert f'"{name}"' in message and "directly" in message


def test_a_bound_target_may_be_let_through() -> None:
    found = through({"name": "web_search", "arguments": {"q": "x"}}, pass_through_bound=True)
    assert runs(found) == {"q": "x"}


def test_case_t25_can_dispatch_says_no_or_raises() -> None:
    def broken(name: str, schema: ToolSchema) -> bool:
        raise RuntimeError(name)

    envelope = {"name": "weather", "arguments": {"city": "Oslo"}}
    for rule in (lambda *_: False, broken):
        refused(through(envelope, can_dispatch=rule), "E7")
        refused(directly("weather", '{"city":"Oslo"}', can_dispatch=rule), "E7")
    assert runs(through(envelope, can_dispatch=lambda name, schema: schema.name == "weather"))


def test_case_t26_a_disabled_bound_tool_called_directly() -> None:
    message = refused(directly("web_search", '{"q":"x"}', disabled={"web_search"}), "E5")
    assert "switched off" in message


def test_case_t27_a_disabled_deferred_target() -> None:
    refused(through({"name": "weather", "arguments": {}}, disabled={"weather"}), "E5")
    refused(directly("weather", disabled={"weather"}), "E5")
    refused(through({"name": "web_search"}, disabled={"web_search"}), "E5")


@pytest.mark.parametrize("name", ["broken", "remote", "circle"])
def test_case_t28_a_schema_that_cannot_be_used(name: str) -> None:
    message = refused(through({"name": name, "arguments": {"a": "x"}}), "E10")
    assert f'"{name}" cannot be called' in message
    refused(directly(name, '{"a":"x"}'), "E10")


@pytest.mark.parametrize("name", ["free", "absent"])
def test_case_t29_no_schema_accepts_any_object(name: str) -> None:
    assert runs(through({"name": name, "arguments": {"any": ["thing"]}})) == {"any": ["thing"]}


def test_case_t48_the_public_function_on_every_kind_of_call() -> None:
    plain = Call("c1", "web_search", "not even json")
    found = resolve_dispatched_tool_call(plain, registry=REGISTRY, bound=BOUND)
    assert isinstance(found, NotDispatched) and found.call is plain
    assert runs(through({"name": "ping"})) == {}
    codes = {
        "E1": through("[1]"),
        "E2": through({}),
        "E3": through({"name": "call_tool"}),
        "E4": through({"name": "nope"}),
        "E5": through({"name": "ping"}, disabled=["ping"]),
        "E6": through({"name": "web_search"}),
        "E7": through({"name": "ping"}, can_dispatch=lambda *_: False),
        "E8": through({"name": "ping", "arguments": 1}),
        "E9": through({"name": "weather"}),
        "E10": through({"name": "broken"}),
    }
    for code, found in codes.items():
        refused(found, code)


class Explodes(dict[str, ToolSchema]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError("a registry that fails")


def test_case_t48_anything_that_raises_is_a_refusal() -> None:
    call = Call("c1", TOOL_DISPATCHER_NAME, '{"name":"ping"}')
    found = resolve_dispatched_tool_call(call, registry=Explodes(), bound=())
    assert isinstance(found, Refused) and found.code == "E10"
    found = resolve_call(replace(call, name="x"), registry=Explodes(), bound=())
    assert isinstance(found, Refused) and found.code == "E10"
    odd = Call("c1", TOOL_DISPATCHER_NAME, {"name": "ping"})  # type: ignore[arg-type]
    assert isinstance(resolve_dispatched_tool_call(odd, registry={}, bound=()), Refused)


@pytest.mark.parametrize("text", ["not json", "[1]", "7", "null", '"text"', '{"name":', '"[1]"'])
def test_an_envelope_that_is_no_object(text: str) -> None:
    found = through(text)
    assert "`name` and `arguments`" in refused(found, "E1")
    assert isinstance(found, Refused)
    assert found.call == Call("c1", TOOL_DISPATCHER_NAME, text, "dispatched")


def test_too_much_text_is_refused() -> None:
    filler = "x" * MAX_ARGUMENTS
    refused(through({"name": "free", "arguments": {"a": filler}}), "E1")
    assert "limit" in refused(directly("free", json.dumps({"a": filler})), "E8")
    deep = '{"a":' * 300 + "1" + "}" * 300
    refused(through('{"name":"free","arguments":' + deep + "}"), "E1")
    assert "nested" in refused(directly("free", deep), "E8")


def test_a_schema_too_long_to_repeat_is_pointed_to() -> None:
    message = refused(through({"name": "big", "arguments": {}}), "E9")
    assert "parameter_1" not in message and TOOL_SEARCH_NAME in message
    without = refused(through({"name": "big"}, search_bound=False), "E9")
    assert TOOL_SEARCH_NAME not in without


def test_what_the_model_wrote_is_kept_byte_for_byte_if_nothing_was_repaired() -> None:
    text = '{ "city":"Osl\\u00f8" , "days" : 1.0e0 }'
    found = through('{"name":"weather", "arguments":' + text + "}")
    assert isinstance(found, Resolved)
    assert (found.call.arguments, found.given, found.coerced) == (text, text, False)
    found = directly("weather", text)
    assert isinstance(found, Resolved)
    assert (found.call.arguments, found.given, found.coerced) == (text, text, False)


def test_lone_surrogates_are_mended() -> None:
    found = through('{"name":"free","arguments":{"a":"\\ud800 \\ud83d\\ude00 \udfff"}}')
    assert isinstance(found, Resolved)
    assert found.call.arguments == '{"a":"\\ufffd \\ud83d\\ude00 \ufffd"}'
    refused(through('{"name":"\\ud800"}'), "E4")


def test_a_name_inside_arguments_is_moved_out_where_it_can_be_nothing_else() -> None:
    found = through({"arguments": {"name": "weather", "city": "Oslo", "days": 1}})
    assert runs(found) == {"city": "Oslo", "days": 1}
    assert isinstance(found, Resolved) and found.coerced
    assert found.given == '{"city":"Oslo","days":1}'
    whole = through({"arguments": {"name": "weather", "arguments": {"city": "Oslo"}}})
    assert runs(whole) == {"city": "Oslo"}
    assert runs(through({"arguments": '{"name":"ping"}'})) == {}
    # The target may mean its own parameter, or says nothing about its parameters.
    refused(through({"arguments": {"name": "user"}}), "E2")
    refused(through({"arguments": {"name": "free", "a": 1}}), "E2")
    refused(through({"arguments": {"name": "nope"}}), "E2")
    refused(through({"arguments": {"name": "call_tool", "arguments": {}}}), "E2")
    refused(through({"arguments": {"name": "web_search", "q": "x"}}), "E6")


def test_parameters_beside_the_name_are_moved_in_where_they_can_be_nothing_else() -> None:
    flat = through({"name": "weather", "city": "Oslo", "days": "2"})
    assert runs(flat) == {"city": "Oslo", "days": 2}
    assert isinstance(flat, Resolved) and flat.coerced
    assert flat.given == '{"city":"Oslo","days":"2"}'
    split = through({"name": "weather", "arguments": {"city": "Oslo"}, "days": 2})
    assert runs(split) == {"city": "Oslo", "days": 2}
    # Keys that are no parameters say nothing where arguments were given.
    found = through({"name": "weather", "arguments": {"city": "Oslo"}, "intent": "look"})
    assert runs(found) == {"city": "Oslo"}
    assert isinstance(found, Resolved) and not found.coerced
    refused(through({"name": "weather", "place": "Oslo"}), "E8")
    refused(through({"name": "weather", "arguments": {"city": "A"}, "city": "B"}), "E8")
    refused(through({"name": "run", "arguments": {"x": 1}, "cmd": "ls"}), "E8")
    refused(through({"name": "run", "arguments": ["-l"], "cmd": "ls"}), "E8")


def test_a_direct_call_of_a_bound_tool_is_checked_and_repaired() -> None:
    found = directly("web_search", '{"q": "x"}')
    assert found == Resolved(
        REGISTRY["web_search"], Call("c1", "web_search", '{"q": "x"}'), '{"q": "x"}'
    )
    assert "call it again" in refused(directly("web_search", "{}"), "E9")
    refused(directly("web_search", "[1]"), "E8")
    search = directly(TOOL_SEARCH_NAME, '{"query":"x","max_results":"3"}')
    assert isinstance(search, Resolved) and search.schema.name == TOOL_SEARCH_NAME
    assert search.call.arguments == '{"query":"x","max_results":3}'


def test_a_direct_call_of_a_dispatchable_tool_runs() -> None:
    found = directly("weather", '{"city":"Oslo","days":"3"}')
    assert runs(found) == {"city": "Oslo", "days": 3}
    assert isinstance(found, Resolved)
    assert found.call.origin == "direct" and found.coerced
    assert found.given == '{"city":"Oslo","days":"3"}'


def test_an_unknown_name_is_told_alone() -> None:
    found = directly("weathr", '{"city":"Oslo"}')
    assert refused(found, "UNKNOWN_TOOL") == 'unknown tool "weathr"'
    assert refused(directly('a"b\n' + "x" * 500), "UNKNOWN_TOOL").startswith(
        'unknown tool "a\\"b x'
    )
    refused(directly(TOOL_SEARCH_NAME, search_bound=False), "UNKNOWN_TOOL")


def test_without_a_dispatcher_only_bound_tools_run() -> None:
    refused(directly("weather", dispatch=False), "E7")
    refused(directly(TOOL_DISPATCHER_NAME, '{"name":"ping"}', dispatch=False), "UNKNOWN_TOOL")
    found = directly("weather", '{"city":"O"}', dispatch=False, bound={"weather"})
    assert runs(found) == {"city": "O"}


def test_a_bound_tool_with_a_new_definition_is_reached_both_ways() -> None:
    # The caller leaves it out of `bound`; the new definition counts.
    for found in (
        through({"name": "web_search", "arguments": {"q": "x"}}, bound=frozenset()),
        directly("web_search", '{"q":"x"}', bound=frozenset()),
    ):
        assert runs(found) == {"q": "x"}


def test_one_predicate_for_search_and_dispatch() -> None:
    for name, schema in REGISTRY.items():
        found = through({"name": name, "arguments": {}}, disabled={"ping"})
        reached = not (isinstance(found, Refused) and found.code in ("E5", "E6", "E7"))
        assert is_dispatchable(schema, bound=BOUND, disabled={"ping"}) == reached, name
    for schema in (CALL_TOOL, replace(CALL_TOOL, name=TOOL_SEARCH_NAME)):
        assert not is_dispatchable(schema, bound=())


def test_rewriting_keeps_the_models_text() -> None:
    call = Call("c1", "weather", '{ "city" : "Osl\\u00f8" }')
    text = rewrite_direct_call(call)
    assert text == '{"name":"weather","arguments":{ "city" : "Osl\\u00f8" }}'
    assert runs(through(text)) == {"city": "Oslø"}
    in_text = rewrite_direct_call(call, string_arguments=True)
    assert json.loads(in_text) == {"name": "weather", "arguments": call.arguments}
    assert runs(through(in_text)) == {"city": "Oslø"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "{}"),
        (" ", "{}"),
        ('{"a":', "{}"),
        ("[1]", "[1]"),
        ('{"a":"\\ud800"}', '{"a":"\\ufffd"}'),
    ],
)
def test_rewriting_always_gives_json(arguments: str, expected: str) -> None:
    text = rewrite_direct_call(Call("c1", 'we"ird', arguments))
    assert text == '{"name":"we\\"ird","arguments":' + expected + "}"


def test_rewriting_twice_changes_nothing() -> None:
    once = rewrite_direct_call(Call("c1", "weather", '{"city":"Oslo"}'))
    assert rewrite_direct_call(Call("c1", TOOL_DISPATCHER_NAME, once)) == once
    assert rewrite_direct_call(Call("c1", TOOL_DISPATCHER_NAME, "[")) == "{}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "arguments", "city", "q", "n"]), inner)
    ),
    max_leaves=10,
)
NAMES = st.sampled_from([*REGISTRY, "call_tool", "tool_search", "nope", ""]) | st.text(max_size=6)
ENVELOPES = (
    st.fixed_dictionaries({}, optional={"name": NAMES | JSON, "arguments": JSON, "city": JSON})
    .map(json.dumps)
    .flatmap(lambda text: st.sampled_from([text, json.dumps(text), text[:-1], text + " "]))
)


@settings(max_examples=300)
@given(
    st.sampled_from([TOOL_DISPATCHER_NAME]) | NAMES,
    ENVELOPES | st.text() | JSON.map(json.dumps),
    st.booleans(),
    st.booleans(),
)
def test_whatever_a_model_writes_nothing_is_raised(
    name: str, text: str, search_bound: bool, pass_through: bool
) -> None:
    call = Call("c1", name, text)
    rules: dict[str, Any] = {
        "registry": REGISTRY,
        "bound": BOUND,
        "search_bound": search_bound,
        "pass_through_bound": pass_through,
    }
    found = resolve_call(call, **rules)
    assert found == resolve_call(call, **rules)
    assert found.call.id == "c1"
    if isinstance(found, Resolved):
        validator = validator_for(found.schema.parameters)
        assert validator.validate(found.call.arguments) == ()
        assert found.coerced == (found.call.arguments != found.given) or name == "call_tool"
        again = resolve_call(found.call, **{**rules, "bound": frozenset(REGISTRY)})
        assert isinstance(again, Resolved) and again.call.arguments == found.call.arguments
    else:
        assert found.message and "\n" not in found.message and len(found.message) < 6_000
    assert isinstance(encoding.decode(rewrite_direct_call(call)), dict)
